/* What all emitters agree on: which nodes make up a kernel, which values leave it, the order of its
 * arguments, and how an IR name is spelled in C. Different files write the kernel and its call in
 * the schedule; they agree because both ask here. */
#include "emit/common.h"

#include "base/escape.h"

#include <ctype.h>
#include <string.h>

const struct value *emit_root(const struct value *v)
{
    while (v->node && op_rows[v->node->op].class == CLASS_VIEW && v->node->op != OP_part)
        v = v->node->in[0].value;
    return v;
}

/* ── which values have bytes ─────────────────────────────────────────────────── */
static void keep(const struct value *v) { ((struct value *)emit_root(v))->mark = 1; }

/* Marks values that are read outside the kernel that makes them: by another kernel, a lane, the
 * next iteration, a gradient slot. */
static void mark_stored(const struct graph *g)
{
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int c = 0; c < r->carry.n; c++) keep(r->carry.item[c].first);
        for (int b = 0; b < r->body.n; b++) {
            const struct body *body = r->body.item[b];
            for (int k = 0; k < body->node.n; k++) {
                const struct node *n = body->node.item[k];
                if (n->op == OP_part) keep(n->in[0].value); /* parts are bytes of the whole */
                if (n->op == OP_put_part) keep(n->in[1].value);
                if (op_rows[n->op].class == CLASS_VIEW) continue;
                for (int o = 0; o < n->n_in; o++) {
                    if (!n->in[o].value) continue;
                    const struct value *root = emit_root(n->in[o].value);
                    if (!root->node || !n->kernel || root->node->kernel != n->kernel) keep(root);
                }
            }
            for (int k = 0; k < body->next.n; k++) keep(body->next.item[k]);
            for (int k = 0; k < body->gradient.n; k++) keep(body->gradient.item[k].value);
        }
    }
}

bool emit_stored(const struct emit *e, const struct value *v)
{
    (void)e;
    return v->mark != 0;
}

/* Which results of a laid-out kernel lie where an operand lay. */
static void find_replaced(const struct graph *g, struct emit_kernel *k)
{
    for (int i = 0; i < k->node.n; i++)
        for (int o = 0; o < k->node.item[i]->n_out; o++) {
            const struct value *out = k->node.item[i]->out[o], *over = NULL;
            const struct buffer *b = emit_stored(NULL, out) ? graph_buffer(g, out->name) : NULL;
            if (!b || !b->over) continue;
            for (int j = 0; j < k->node.n && !over; j++)
                for (int x = 0; x < k->node.item[j]->n_in && !over; x++) {
                    const struct value *v = k->node.item[j]->in[x].value;
                    if (v && !strcmp(v->name, b->over)) over = v;
                }
            if (!over)
                bug("%s is written over %s, which its kernel does not read", out->name, b->over);
            PUSH(&k->replaced, ((struct replaced){out, over}));
        }
}

struct emit *emit_open(const struct graph *g)
{
    struct emit *e = TAKE(struct emit);
    e->graph = g;
    for (int i = 0; i < g->kernel.n; i++)
        PUSH(&e->kernel, ((struct emit_kernel){.kernel = &g->kernel.item[i]}));
    for (int i = 0; i < g->input.n; i++) g->input.item[i]->mark = 1;
    for (int i = 0; i < g->weight.n; i++) g->weight.item[i]->value->mark = 1;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int c = 0; c < r->carry.n; c++)
            r->carry.item[c].value->mark = r->carry.item[c].last->mark = 1;
        for (int b = 0; b < r->body.n; b++)
            for (int k = 0; k < r->body.item[b]->node.n; k++) {
                struct node *n = r->body.item[b]->node.item[k];
                for (int o = 0; o < n->n_out; o++) n->out[o]->mark = 0;
                if (!n->kernel) continue;
                struct emit_kernel *to = &e->kernel.item[n->kernel - 1];
                if (to->kernel->number != n->kernel)
                    bug("kernel %d is not number %d of the table", to->kernel->number, n->kernel);
                to->region = r;
                to->body = r->body.item[b];
                PUSH(&to->node, n);
            }
    }
    mark_stored(g);
    for (int i = 0; i < e->kernel.n && g->level >= LEVEL_MEMORY; i++)
        find_replaced(g, &e->kernel.item[i]);
    return e;
}

/* ── arguments ───────────────────────────────────────────────────────────────── */
struct arguments_of {
    VECTOR(struct argument) item;
};

static void argument_add(struct arguments_of *to, struct argument a)
{
    for (int i = 0; i < to->item.n; i++) {
        struct argument *b = &to->item.item[i];
        if (b->kind == a.kind && b->value == a.value && b->name == a.name) {
            b->written |= a.written;
            return;
        }
    }
    PUSH(&to->item, a);
}

static struct argument state_argument(const struct node *n, bool written)
{
    return (struct argument){.kind = ARGUMENT_STATE,
                             .name = attr_get_word(n, "name"),
                             .state = node_state(n),
                             .written = written};
}

static void argument_of_operand(struct arguments_of *to, const struct emit_kernel *k,
                                const struct value *v, enum argument_kind kind)
{
    const struct value *root = emit_root(v);
    enum op op = root->node ? root->node->op : OP_COUNT;
    struct argument a = {.kind = ARGUMENT_IN, .value = root};
    if (op == OP_zeros || op_of_stretch(op)) return;
    if (root->node && root->node->kernel == k->kernel->number) return;
    for (int i = 0; i < k->replaced.n; i++)
        if (k->replaced.item[i].over == root) return;
    if (op == OP_scalar) a = (struct argument){.kind = ARGUMENT_SCALARS};
    if (op == OP_state) a = state_argument(root->node, false);
    if (op == OP_metric_sum)
        a = (struct argument){.kind = ARGUMENT_METRIC, .name = attr_get_word(root->node, "name")};
    if (a.kind == kind) argument_add(to, a);
}

static const struct value *replaced_by(const struct emit_kernel *k, const struct value *out)
{
    for (int i = 0; i < k->replaced.n; i++)
        if (k->replaced.item[i].out == out) return k->replaced.item[i].over;
    return NULL;
}

int emit_arguments(const struct emit *e, const struct emit_kernel *k, struct argument **out)
{
    struct arguments_of all = {0};
    static const enum argument_kind order[] = {ARGUMENT_IN, ARGUMENT_OUT, ARGUMENT_STATE,
                                               ARGUMENT_SCALARS, ARGUMENT_METRIC};
    for (size_t o = 0; o < COUNT_OF(order); o++)
        for (int i = 0; i < k->node.n; i++) {
            const struct node *n = k->node.item[i];
            if (op_rows[n->op].class == CLASS_VIEW || op_rows[n->op].class == CLASS_LEAF) continue;
            for (int x = 0; x < n->n_in; x++)
                if (n->in[x].value) argument_of_operand(&all, k, n->in[x].value, order[o]);
            if (order[o] == ARGUMENT_OUT)
                for (int x = 0; x < n->n_out; x++)
                    if (emit_stored(e, n->out[x]) || op_rows[n->op].class == CLASS_CORE)
                        argument_add(&all, (struct argument){.kind = ARGUMENT_OUT,
                                                             .value = n->out[x],
                                                             .over = replaced_by(k, n->out[x]),
                                                             .written = true});
            if (n->op == OP_assign && order[o] == ARGUMENT_STATE)
                argument_add(&all, state_argument(emit_root(n->in[0].value)->node, true));
            if ((n->op == OP_assign || n->op == OP_assign_scalar) && order[o] == ARGUMENT_SCALARS)
                argument_add(&all, (struct argument){.kind = ARGUMENT_SCALARS,
                                                     .written = n->op == OP_assign_scalar});
            if (n->op == OP_metric && order[o] == ARGUMENT_METRIC)
                argument_add(&all, (struct argument){.kind = ARGUMENT_METRIC,
                                                     .name = attr_get_word(n, "name"),
                                                     .written = true});
        }
    *out = all.item.item;
    return all.item.n;
}

const struct node *emit_reads(const struct emit_kernel *k, enum op op)
{
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in; x++) {
            const struct value *v = k->node.item[i]->in[x].value;
            if (v && emit_root(v)->node && emit_root(v)->node->op == op) return emit_root(v)->node;
        }
    return NULL;
}

const struct node *emit_walked(const struct emit_kernel *k)
{
    const enum op of_a_shard[] = {OP_state, OP_decay, OP_lr_scale, OP_balance_mean,
                                  OP_balance_rate};
    const struct node *found = NULL;
    for (size_t i = 0; i < COUNT_OF(of_a_shard) && !found; i++)
        found = emit_reads(k, of_a_shard[i]);
    return found;
}

bool emit_walks_shard(const struct emit_kernel *k) { return emit_walked(k) != NULL; }

/* ── names ───────────────────────────────────────────────────────────────────── */
static bool among(const char *name, const char *const *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, word[i])) return true;
    return false;
}

/* Words of C and C++, and macros of compilers. */
static bool is_keyword(const char *name)
{
    static const char *const word[] = {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
        "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
        "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
        "union", "unsigned", "void", "volatile", "while", "unix", "linux", "NULL",
        /* of C++ */
        "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool", "catch", "class",
        "compl", "concept", "const_cast", "constexpr", "decltype", "delete", "dynamic_cast",
        "explicit", "export", "false", "friend", "mutable", "namespace", "new", "noexcept", "not",
        "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
        "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "throw",
        "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq"};
    return among(name, word, COUNT_OF(word));
}

/* What kernels say themselves: loop variables, functions of the templates and of the C library. */
static bool is_ours(const char *name)
{
    static const char *const word[] = {
        "j", "k", "p", "r", "s", "j0", "bf16", "scalars", "gemm", "product", "memset", "memcpy",
        "positions", "document_positions", "rope_cos", "rope_sin", "embedding", "embedding_grad",
        "attention", "attention_grad", "top_k", "route_plan", "load", "dispatch", "collect",
        "to_rows", "from_rows", "expert_matmul", "expert_matmul_grad", "product_of",
        "embedding_grad_of", "attention_of", "attention_grad_of", "dispatch_of", "collect_of",
        "expert_matmul_of", "expert_matmul_grad_of", "sum_squares", "sum_middle", "exp", "log",
        "sqrt", "tanh", "erf", "pow", "sin", "cos", "fabs", "INFINITY", "NAN",
        /* on cuda */
        "t", "i", "r0", "r1", "from", "count", "decay", "lr_scale", "balance_mean", "balance_rate",
        "work", "shared", "wide_shared", "store", "row_sum", "row_max", "row_meet", "store_sums",
        "add_chunks", "add_numbers", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"};
    return among(name, word, COUNT_OF(word));
}

const char *emit_word(const char *name)
{
    struct text t = {0};
    if (!isalpha((unsigned char)name[0])) text_add(&t, "v_");
    for (const char *c = name; *c; c++) text_add(&t, "%c", isalnum((unsigned char)*c) ? *c : '_');
    if (is_keyword(t.bytes)) text_add(&t, "_");
    return intern(t.bytes);
}

const char *emit_identifier(const char *name)
{
    const char *word = emit_word(name);
    return is_ours(word) ? intern_format("%s_", word) : word;
}

const char *emit_argument_name(const struct argument *a, int index, bool canonical)
{
    if (canonical) return intern_format("p%d", index);
    switch (a->kind) {
    case ARGUMENT_IN:
    case ARGUMENT_OUT: return emit_identifier(a->value->name);
    case ARGUMENT_STATE: return intern_format("state_%s", a->name);
    case ARGUMENT_SCALARS: return intern("scalars");
    case ARGUMENT_METRIC: return intern_format("metric_%s", emit_identifier(a->name));
    }
    bug("argument kind %d", (int)a->kind);
}

void emit_list(struct text *to, const char *opening, const struct emit_list *list,
               const char *closing)
{
    size_t column = strlen(opening), next = column <= 48 ? column : 8;
    text_add(to, "%s", opening);
    for (int i = 0; i < list->item.n; i++) {
        size_t width = strlen(list->item.item[i]) + 1; /* and a comma or the parenthesis */
        if (i && column + 1 + width > 100) {
            text_add(to, ",\n%*s", (int)next, "");
            column = next;
        } else if (i) {
            text_add(to, ", ");
            column++;
        }
        text_add(to, "%s", list->item.item[i]);
        column += width;
    }
    text_add(to, "%s", closing);
}

/* ── what a kernel says of itself ──────────────────────────────────────────────── */
enum op emit_core_op(const struct emit_kernel *k)
{
    for (int i = 0; i < k->node.n; i++)
        if (op_rows[k->node.item[i]->op].class == CLASS_CORE) return k->node.item[i]->op;
    return OP_COUNT;
}

const char *emit_argument_type(const struct argument *a)
{
    const char *constant = a->written ? "" : "const ";
    switch (a->kind) {
    case ARGUMENT_IN:
    case ARGUMENT_OUT:
        switch (a->value->type) {
        case F32: return text_format("%sfloat", constant);
        case BF16: return text_format("%sbf16", constant);
        case F64: return text_format("%sdouble", constant);
        case I32: return text_format("%sint32_t", constant);
        }
        break;
    case ARGUMENT_STATE:
    case ARGUMENT_SCALARS: return text_format("%sfloat", constant);
    case ARGUMENT_METRIC: return text_format("%sdouble", constant);
    }
    bug("argument kind %d", (int)a->kind);
}

/* "layers.forward, map over 2048 x 384, tiny.plan:12" */
void emit_kernel_comment(struct text *to, const struct emit_kernel *k)
{
    const struct kernel *kernel = k->kernel;
    struct text t = {0};
    text_add(&t, "%s%s%s: %s", k->region ? k->region->name : "",
             k->body && k->body->name[0] ? " " : "", k->body ? k->body->name : "",
             kernel_class_name(kernel));
    /* whose length the mesh decides, and nothing else here */
    if (emit_walks_shard(k))
        text_add(&t, " over a stretch of the shard");
    else if (emit_core_op(k) == OP_COUNT)
        text_add(&t, " over %ld x %ld", kernel->rows, kernel->columns);
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->file) {
            text_add(&t, ", %s:%d", k->node.item[i]->file, k->node.item[i]->line);
            break;
        }
    for (int i = 0; i < k->replaced.n; i++)
        text_add(&t, "%s %s is written over %s", i ? "," : ";", k->replaced.item[i].out->name,
                 k->replaced.item[i].over->name);
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in && k->node.item[i]->op == OP_mul; x++)
            if (!k->node.item[i]->in[x].value && k->node.item[i]->in[x].number == 0)
                text_add(&t, "; times 0: 0, but NaN where the operand is not finite");
    text_add(to, "/* %s */\n", escape_comment(t.bytes));
}

const char *emit_rope(const struct node *n, const char *out)
{
    static const char *const keys[] = {"theta", "linear", "factor", "low", "high", "original"},
                             *const yarn[] = {"theta", "yarn", "from", "to", "magnitude"};
    const bool by_yarn = attr_find(n, "yarn");
    const char *const *key = by_yarn ? yarn : keys;
    struct text t = {0};
    int64_t d = attr_get(n, "d");
    text_add(&t, "%s%s(%s, %ld, %ld, %ld", op_rows[n->op].name, by_yarn ? "_yarn" : "", out,
             attr_get(n, "sequence"), d, attr_or(n, "width", d));
    for (size_t i = 0; i < (by_yarn ? COUNT_OF(yarn) : COUNT_OF(keys)); i++) {
        bool plain = !strcmp(key[i], "linear") && !attr_find(n, key[i]);
        text_add(&t, ", %s", plain ? "1" : text_number(attr_get_real(n, key[i])));
    }
    text_add(&t, ")");
    return t.bytes;
}
