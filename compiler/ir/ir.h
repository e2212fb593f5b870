/* The intermediate representation, from `lower` to the generated text. It stays rolled: a `repeat`
 * is a region with one body (or a few variants, such as dense and sparse layers) however many
 * layers it has, so a 48-layer model is exactly as long as a 2-layer one. There is one node type.
 * Each pass fills one group of its fields, the printer shows them, the parser reads them back and
 * the verifier refuses one that is set too early. The text is complete.
 *
 * A program has setup regions, once per run; micro regions, once per micro-batch, in order; update
 * regions, once per step. Values have names that are unique in the graph. A value may be used
 *   - in its own body, later;
 *   - in a later region, if it comes from a region that runs ONCE or is a carry's `last`;
 *   - in the mirror body (the backward body of the same loop), same iteration: such a value is
 *     saved, one entry per iteration. */
#ifndef PLANC_IR_H
#define PLANC_IR_H

#include "check/plan.h"
#include "ir/ops.h"

enum level {
    LEVEL_LOWER,
    LEVEL_JOIN,
    LEVEL_SPLIT,
    LEVEL_GRADIENT,
    LEVEL_CHUNK,
    LEVEL_OPTIMIZER,
    LEVEL_RECOMPUTE,
    LEVEL_SHARD,
    LEVEL_FUSE,
    LEVEL_SCHEDULE,
    LEVEL_MEMORY
};
/* The names under which the text shows enumerators, in their order. */
extern const char *const level_names[];
extern const char *const element_names[];
extern const char *const lane_names[];
extern const char *const phase_names[];
extern const char *const direction_names[];
extern const char *const reshard_names[];
extern const char *const experts_names[4];
extern const char *const checkpoint_names[];
extern const char *const weight_init_names[];
extern const char *const segment_names[];
extern const char *const buffer_kind_names[];
extern const char *const buffer_index_names[];
extern const char *const kernel_class_names[];
extern const char *const dim_names[];

#define SHAPE_RANK 4
struct shape {
    int rank;
    int64_t dim[SHAPE_RANK];
};

enum attr_kind { ATTR_WHOLE, ATTR_REAL, ATTR_WORD };
struct attr {
    const char *key;
    enum attr_kind kind;
    int64_t whole;
    double real;
    const char *word;
};

struct node;
struct weight;
/* A result, an input of the graph (tokens, targets), a carry inside its loop, or a weight. */
struct value {
    const char *name; /* interned, unique */
    enum element type;
    struct shape shape;
    struct node *node;     /* who makes it; NULL for inputs, carries, weights */
    struct weight *weight; /* NULL unless it is one */
    /* scratch for the pass that runs; meaningless between passes */
    int64_t mark;
    void *note;
};

/* value NULL: the number itself, broadcast */
struct operand {
    struct value *value;
    double number;
};

enum lane { LANE_NONE, LANE_COMPUTE, LANE_GATHER, LANE_REDUCE, LANE_REPLICAS, LANE_HOST };

struct node {
    enum op op;
    struct operand *in;
    int n_in;
    struct value **out;
    int n_out;
    struct attr *attr;
    int n_attr;
    const char *file;
    int line;   /* the plan's line this comes from; file NULL: none */
    bool again; /* recompute: a second computation of a forward node */
    /* fuse: number of its kernel, from 1; 0 none (views, leaves, lane steps) */
    int kernel;
    enum lane lane; /* schedule */
    /* schedule: number of its step, from 1; shared by the nodes of a kernel */
    int step;
    int64_t mark;
    void *note; /* scratch */
};

/* Inside the loop `value` is what the previous iteration left (first: before the first); `last` is
 * visible after it. */
struct carry {
    struct value *value, *first, *last;
};
/* The final gradient of a weight in this body: written straight into the unit's gradient slot. */
struct yield_gradient {
    struct value *weight, *value;
};

struct stretch {
    int64_t from, to;
}; /* half open */

struct body {
    const char *name; /* of the variant; "" when there is only one */
    /* what its mirror may find kept (split); none until then */
    enum checkpoint_mode keep;
    /* what mode selective keeps of it: op kinds, value names, "#7" (its node 7) */
    const char *save;
    VECTOR(struct node *) node;
    /* for carry k, the value handed to the next iteration */
    VECTOR(struct value *) next;
    VECTOR(struct yield_gradient) gradient;
    VECTOR(struct stretch) layers; /* iterations that run it; empty: all */
};

enum phase { PHASE_SETUP, PHASE_MICRO, PHASE_UPDATE };
enum direction { ONCE, UP, DOWN };
struct region {
    const char *name; /* "prologue.forward", "layers.backward", "update.layers" */
    enum phase phase;
    enum direction direction;
    int64_t count; /* iterations: 1 for ONCE */
    /* of a backward region: its forward region's name; else NULL */
    const char *mirror;
    /* the region whose gathered units it goes on using (the loss chunks), or NULL */
    const char *within;
    const char *loop; /* whose index it runs over: "layers"; "" for ONCE */
    VECTOR(struct carry) carry;
    VECTOR(struct body *) body;
};

enum weight_init { WEIGHT_NORMAL, WEIGHT_ONES, WEIGHT_ZEROS };
#define WEIGHT_INITS (WEIGHT_ZEROS + 1)
struct weight {
    struct value *value; /* shape: [E,...] when stacked */
    const char *tensor;  /* "model.layers.{i}.mlp.experts.{e}.up_proj.weight" */
    /* stored tensors along the first axis; 0: one tensor of the whole shape */
    int64_t stack;
    /* join: a second tensor, whose rows follow those of `tensor` (in each part of a stack); both
     * have half of the weight's rows. NULL: none */
    const char *beside;
    const char *unit;
    enum weight_init init;
    double std; /* of WEIGHT_NORMAL */
    /* The bias of a router, which no gradient trains: each step moves an element by `rate`, up
     * where fewer tokens of the whole step chose its expert than on average, down where more did
     * (DeepSeek-V3, DeepSeek-AI, 2024, section 2.1.2). Computing in BF16 it is gathered as three
     * numbers an element, [3,E], whose sum is the F32 one. */
    bool balances;
    double rate;
    int64_t choices; /* that a token has, of all routers that read it */
    const char *file;
    int line;
    int64_t offset; /* shard: first element in the unit's flat buffer */
};
/* One FSDP unit: the weights of a loop body (count = iterations), or of the straight code before or
 * behind. */
struct unit {
    const char *name;
    const char *loop;
    int64_t count;
    const char *variant; /* body name when the loop has variants, "" else */
    /* shard: flat length padded to shards x 64 elements, and a rank's part */
    int64_t elements, shard_elements;
    /* shard: first element of instance 0 in each resident shard buffer */
    int64_t state_offset;
    /* shard: a rank's part of master weights and moments, facts.parts of which make a shard; and
     * state_offset in what is resident by shards (weights, whole gradients). Printed when there are
     * parts; else they are shard_elements and state_offset. */
    int64_t part_elements, shard_offset;
};

enum segment { SEGMENT_LOCAL, SEGMENT_WIRE };
/* What a buffer is for, which is also its term of the ledger. An alias is another name for bytes of
 * a buffer that owns them; docs/memory.md says what each of the others is. */
enum buffer_kind {
    BUFFER_MASTER,
    BUFFER_GRADIENT,
    BUFFER_MOMENT1,
    BUFFER_MOMENT2,
    BUFFER_WEIGHTS,
    BUFFER_SCALARS,
    BUFFER_STAGING,
    BUFFER_WORKSPACE,
    BUFFER_REDUCE_STAGING,
    BUFFER_METRICS,
    BUFFER_GATHERED,
    BUFFER_GRADIENT_SLOTS,
    BUFFER_GRADIENT_SHARDS,
    BUFFER_CARRIED,
    BUFFER_SAVED,
    BUFFER_BATCH,
    BUFFER_TABLES,
    BUFFER_WORKING,
    BUFFER_ALIAS
};
#define BUFFER_KINDS (BUFFER_ALIAS + 1)
/* Which entry a body means: the only one, its iteration's in the order of layers, or, of a ring in
 * the order of running, its iteration's or the next one's. */
enum buffer_index { INDEX_ONLY, INDEX_LAYER, INDEX_RING, INDEX_RING_NEXT };
#define BUFFER_INDICES (INDEX_RING_NEXT + 1)
/* memory: where bytes live. `name` is a value's name, a slot's (slot_name), "state.master",
 * "stage" … */
struct buffer {
    const char *name;
    enum buffer_kind kind;
    enum segment segment;
    /* from where its segment begins (a local one may reach into wire); of one entry, entries lie
     * `stride` apart */
    int64_t offset, bytes;
    int64_t entries, stride; /* negative: entry 0 lies behind the others */
    enum buffer_index index; /* see memory.c */
    /* steps (in text order) between which it holds something, both included */
    int live_from, live_to;
    /* entry `idle_entry` holds nothing in steps idle_from to idle_to; idle_to 0: none is idle */
    int64_t idle_entry;
    int idle_from, idle_to;
    /* of an alias: the value in whose place its kernel, the last to read that one, writes it; NULL
     */
    const char *over;
};

/* How a kernel walks: rows and columns, or as its core op does. */
enum kernel_class { KERNEL_MAP, KERNEL_ROW, KERNEL_COLUMN, KERNEL_ROW_COLUMN, KERNEL_CORE };
struct kernel {
    int number;
    const char *name;
    enum kernel_class class;
    enum op core; /* of KERNEL_CORE, which the text shows by its op's name */
    int64_t rows, columns;
    double flops, bytes;
};

/* What the passes need of the plan, as the text carries it. */
struct facts {
    int64_t sequence, local, tokens, accumulation, fsdp, dp, prefetch, reduce_slots, loss_chunks;
    enum reshard reshard;
    enum checkpoint_mode checkpoint_mode;
    /* one layer in so many is under checkpoint_mode; the others keep all that is needed */
    int64_t checkpoint_every;
    const char *checkpoint_layers; /* "0..4 8..12", half open: the layers it may apply to; "" all */
    const char *checkpoint_save; /* what mode selective keeps, blanks between; "LOOP/BODY#7" is node
                                    7 of that body */
    /* the mode of the layers that checkpoint_mode leaves alone, and what it keeps */
    enum checkpoint_mode checkpoint_rest;
    const char *checkpoint_rest_save;
    enum element compute;
    /* what the kernels are for: cuda has a workspace; not printed when it is cpu */
    enum device_kind device;
    /* on cuda: attention is offered to a library first, with room for it; printed only then */
    bool attention_library;
    enum experts experts; /* whose expert products; printed when not planc's */
    /* on cuda: kernels for products of warpgroups are written too, for devices that have them;
     * printed only then */
    bool wgmma;
    /* on cuda: the most shared memory that a block may have; 0: no kernel wants more than there is,
     * and not printed */
    int64_t shared_bytes;
    /* on cuda: of a device of the plan's cluster; 0: the cluster does not say, and not printed */
    int64_t multiprocessors;
    bool fuse;
    bool has_ignore;
    int64_t ignore;
    double beta1, beta2, eps, clip;
    /* each product of the architecture stays one of its own, as in the trainer that the plan names;
     * printed only then */
    bool apart;
    bool group_rates; /* some weights have a rate of their own; printed only then */
    /* into how many parts the replicas cut a shard of master weights and moments: dp, or 1: each
     * has all of it; printed when not 1 */
    int64_t parts;
};
/* Whether gradients are added up in whole shards over the micro-batches of a step, and each replica
 * has its part of the sum at the beginning of its shard; else, with parts, only the part is kept,
 * and shards pass through a ring (shards_name). */
static inline bool gradients_whole(const struct facts *f)
{
    return f->parts == 1 || f->accumulation > 1;
}

struct name_set;

struct graph {
    enum level level;
    struct facts facts;
    /* tokens [T] I32, targets [T] I32; with separate documents also starts [T] I32: of a row, the
     * number of its document's first row in the micro-batch */
    VECTOR(struct value *) input;
    VECTOR(struct unit *) unit;
    VECTOR(struct weight *) weight;
    VECTOR(struct region *) region;
    VECTOR(struct kernel) kernel;    /* fuse */
    VECTOR(struct buffer *) buffer;  /* memory */
    int64_t local_bytes, wire_bytes; /* memory: the arena is both, `wire` after `local` */
    int steps;                       /* schedule: highest step number */
    /* every name taken, for fresh ones (not printed: it follows from the text) */
    struct name_set *names;
};

/* ── building ────────────────────────────────────────────────────────────────── */
/* Appends nodes to one body. `file`/`line` are stamped on every node made until changed. */
struct build {
    struct graph *graph;
    struct region *region;
    struct body *body;
    const char *file;
    int line;
    bool again;
    const char *base;
};

/* A name not used yet, from a stem: "h", "h.1", "h.2" … */
const char *fresh_name(struct graph *g, const char *stem);
/* Forgets the names of all values, for a pass that renames them. It then gives each value a
 * fresh_name, or its old name: name_keep, which returns a fresh one if the old one is taken. */
void names_clear(struct graph *g);
const char *name_keep(struct graph *g, const char *name);
struct value *value_new(struct graph *g, const char *name, enum element type, struct shape shape);
struct shape shape_of(int rank, const int64_t *dim);
int64_t shape_count(struct shape s);
bool shape_same(struct shape a, struct shape b);
const char *shape_text(struct shape s); /* "[2048, 384]" */
int64_t shape_columns(struct shape s);  /* the last axis; 1 without axes */
int64_t shape_rows(struct shape s);     /* how many rows of so many columns */
int64_t element_bytes(enum element type);
/* What a weight is in files and in the optimizer: its shape, but [E] for a bias of a router. */
struct shape weight_shape(const struct weight *w);
/* How many tokens of a step choose an expert on average; 0: no bias of a router. */
double weight_mean_load(const struct graph *g, const struct weight *w);
/* Elements at the beginning of a unit that must be in one shard: a router's bias in BF16, whose
 * three numbers one rank makes. Whole alignments of weights. */
int64_t unit_together(const struct graph *g, const struct unit *u);
/* Elements from one beginning of a weight in its unit to the next possible one: 256 bytes. */
int64_t weight_alignment(const struct graph *g);
static inline struct operand by(struct value *v) { return (struct operand){v, 0}; }
static inline struct operand num(double x) { return (struct operand){NULL, x}; }

/* Makes a node whose result types and shapes follow from op, operands and attributes (op_infer);
 * NULL when the operands do not fit, *why then saying how ("[2048, 384] against [512]"). */
struct node *build_node(struct build *b, enum op op, const struct operand *in, int n_in,
                        const struct attr *attr, int n_attr, const char **why);
/* The same when it must fit (bug() otherwise); the first result. */
struct value *build_op(struct build *b, enum op op, const struct operand *in, int n_in,
                       const struct attr *attr, int n_attr);
struct value *build1(struct build *b, enum op op, struct operand a);
struct value *build2(struct build *b, enum op op, struct operand a, struct operand c);
struct attr attr_whole(const char *key, int64_t x);
struct attr attr_real(const char *key, double x);
struct attr attr_word(const char *key, const char *word);
/* The attributes that say a shape, d0 and so on, into attr[0 .. rank); how many there are. */
int attr_dims(struct attr *attr, struct shape s);
const struct attr *attr_find(const struct node *n, const char *key); /* NULL: not there */
/* whole; bug() when not there */
int64_t attr_get(const struct node *n, const char *key);
int64_t attr_or(const struct node *n, const char *key, int64_t otherwise);
double attr_get_real(const struct node *n, const char *key);
const char *attr_get_word(const struct node *n, const char *key);

/* Result types and shapes of a node from its operands and attributes. False with *why. Output
 * arrays have op_rows[op].results places. Reading its text, a node's printed types and shapes must
 * agree with this: nothing is said twice unchecked. */
bool op_infer(enum op op, const struct operand *in, int n_in, const struct attr *attr, int n_attr,
              enum element *type, struct shape *shape, const char **why);
/* What reaches the operands of `n` when `d[i]` (NULL: none) is the gradient with respect to result
 * i: fills into[] (NULL where the operand asks for none, value->mark 0, or the op is a constant for
 * it). A weight's is F32, another's has its type. */
void op_gradient(struct build *b, const struct node *n, struct value *const *d,
                 struct value **into);
/* Which scores attention and its gradient have. Row i of a sample sees the keys from the largest of
 * i - window + 1, the first row of its sample and the first row of its document, up to i. A score
 * is scale times the inner product x of query and key; with a cap it is softcap tanh(scale x /
 * softcap). */
struct attention_rule {
    int64_t window; /* 0: none */
    double scale;   /* 1 / sqrt(d) unless attribute scale says another */
    double softcap; /* 0: none */
    struct value
        *starts; /* [T] I32, NULL: none. Of a row, the number of its document's first row */
};
struct attention_rule attention_rule(const struct node *n);
/* Attributes that attention has at most. Of its gradient on cuda attribute room: heads of F32 sums
 * for each row of q. Blocks of the tensor cores' form (BF16, rows of whole 16 bytes, up to 256
 * wide) add dq up there, and dk and dv where heads share keys; 0: other forms need none. At least
 * 2, as the cpu's kernel wants, against which cuda's is compared. */
enum { ATTENTION_ATTRIBUTES = 4 };
int64_t attention_room(const struct facts *f, const struct node *attention);
/* FLOPs of one node, a multiply-add is two. */
struct op_flops {
    /* over the whole sequence or window, nothing that its kernel computes a second time */
    double model;
    double causal; /* of these, what a causal mask leaves */
    double run;    /* what its kernel does */
};
struct op_flops op_flops(const struct node *n);
/* What its kernel does and moves: FLOPs (op_flops().run) and bytes. */
void op_cost(const struct node *n, double *flops, double *bytes);
/* How many numbers the longest sum of a node adds. */
int64_t op_terms(const struct node *n);

/* Visits every node of a graph in the order of its text. Starts as {0}; false after the last node:
 *   for (struct node_walk at = {0}; next_node(g, &at);) … at.node … */
struct node_walk {
    struct region *region;
    struct body *body;
    struct node *node;
    int region_index, body_index, node_index;
};
bool next_node(const struct graph *g, struct node_walk *at);
/* The same for the nodes of one region. */
bool next_node_of_region(const struct region *r, struct node_walk *at);

struct region *graph_region(const struct graph *g, const char *name); /* NULL: none */
struct value *graph_starts(const struct graph *g);                    /* the input; NULL: none */
struct unit *graph_unit(const struct graph *g, const char *name);
/* The name that the units of one slot have together: the loop's, or the unit's own. */
const char *unit_shared_name(const struct unit *u);
/* The largest number of elements of the units with that name. */
int64_t slot_elements(const struct graph *g, const char *unit);
/* The buffer that a region gathers a unit into, or leaves its gradients in: the units of a loop
 * share one. */
enum slot { SLOT_GATHER, SLOT_GRADIENT };
const char *slot_name(enum slot slot, const char *region, const struct unit *u);
/* The buffer in which the shards of a unit's gradient wait for the sum over the replicas when only
 * parts are kept: one for a unit, or for the units of a loop. */
const char *shards_name(const struct unit *u);
/* The unit whose slot a buffer of kind GATHERED or GRADIENT_SLOTS is; of a loop's units the one
 * with most elements. */
const struct unit *slot_unit(const struct graph *g, const struct buffer *b);
/* With facts.reshard backward or step: the buffer that a unit is gathered into once, for all
 * regions that read it. NULL with forward, or when nothing is gathered. */
struct buffer *kept_slot(const struct graph *g, const struct unit *u);
/* The slot that owns the bytes in which a region reads a unit's weights: its own, that of an
 * earlier region that kept them, of its mirror, or of the region that it is within. NULL: it reads
 * none. */
struct buffer *slot_read(const struct graph *g, const struct region *r, const struct unit *u);
struct buffer *graph_buffer(const struct graph *g, const char *name); /* NULL: none */
/* The same for one that must be there. */
struct buffer *graph_buffer_must(const struct graph *g, const char *name);
/* How many entries of a buffer hold something at a step; 0 for an alias. */
int64_t buffer_entries_at(const struct buffer *b, int step);
/* Resident state: BUFFER_MASTER, _GRADIENT, _MOMENT1 or _MOMENT2, of which every shard has a part.
 */
bool is_state(enum buffer_kind kind);
const char *state_name(enum buffer_kind kind); /* of its buffer: "state.master" */
/* The state that a node of OP_state reads. */
enum buffer_kind node_state(const struct node *n);
const struct kernel *graph_kernel(const struct graph *g, int number);
const char *kernel_class_name(const struct kernel *k); /* "row+column", "matmul" */

/* Rebuilding (a pass never splices): graph_begin starts a new graph with the old one's facts,
 * inputs, units, weights and names; then regions and nodes are copied in order, with what the pass
 * changes left out, put in or made otherwise. `copied` is the new graph's value for one of the old
 * graph's (bug() when it was not copied yet). */
struct graph *graph_begin(const struct graph *old, enum level level);
struct value *copied(const struct value *old);
void copied_as(const struct value *old, struct value *now); /* the pass made it otherwise */
struct region *region_new(struct graph *g, const char *name, enum phase phase,
                          enum direction direction, int64_t count, const char *loop);
struct body *body_new(struct region *r, const char *name);
/* head and carries; `last` not yet visible */
struct region *region_begin(struct graph *g, const struct region *old);
/* its name and layers */
struct body *body_begin(struct region *r, const struct body *old);
/* results keep their names */
struct node *node_copy(struct build *b, const struct node *old);
/* next and gradients */
void body_end(struct body *now, const struct body *old);
/* `last` of the carries */
void region_end(struct graph *g, struct region *now, const struct region *old);
/* all of it, unchanged */
void region_copy(struct graph *g, const struct region *old);
/* Takes out nodes that nothing needs: no effect, no gradient, no next value depends on them. */
void graph_sweep(struct graph *g);
void kernels_copy(struct graph *g, const struct graph *old);

/* ── text ────────────────────────────────────────────────────────────────────── */
void ir_print(struct text *to, const struct graph *g);
/* The graph of a text, or NULL with one line in *why ("line 12: ..."). ir_print of it gives the
 * same bytes. */
struct graph *ir_parse(const char *bytes, size_t n, const char **why);
/* bug() unless everything that `g->level` promises holds. */
void ir_verify(const struct graph *g);
/* The same as a message instead; NULL when fine. */
const char *ir_check(const struct graph *g);

#endif
