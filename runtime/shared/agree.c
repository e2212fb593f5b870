/* Do all ranks run the same thing? A launcher may start another program on some of them, and a host
 * may have a copy of data or weights that is older than the others': such a run trains, with a
 * status of 0, and another model. So before anything is computed each rank compares what it has
 * with rank 0's, value by value where there is a name for it, and by hashes. Files are compared
 * whole up to 64 MiB together; of more each rank reads the sizes and so many bytes of blocks, which
 * costs the same for any size. What a rank then reads of such files, a rank of another host reads
 * too (agree_shift), and they compare what they got. */
#define _GNU_SOURCE
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALL_BLOCK = 1 << 12, /* of each of many files */
    BLOCK = 1 << 16,
    BLOCKS_OF_ALL = 1 << 10, /* so 64 MiB */
    MANY_FILES = 1 << 8,
    HALVES = 2
};

/* ── hashes ──────────────────────────────────────────────────────────────────── */

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (; n > 0; p += 8) {
        uint64_t word = 0;
        const size_t some = n < 8 ? n : 8;
        memcpy(&word, p, some);
        h = (h ^ word ^ some << 56) * 0x9fb21c651e98df25u;
        h ^= h >> 29;
        n -= some;
    }
    return shuffle_mix(h);
}

static uint64_t hash_text(const char *text)
{
    return text ? hash_bytes(1, text, strlen(text) + 1) : 0;
}

/* A double holds no 64 bits. */
static void put_hash(double *to, uint64_t h)
{
    to[0] = (double)(h >> 32);
    to[1] = (double)(h & UINT32_MAX);
}

static bool read_block(int fd, int64_t at, int64_t n, uint64_t *h)
{
    static char block[BLOCK];
    int64_t got = 0;
    while (got < n) {
        ssize_t some = pread(fd, block + got, (size_t)(n - got), (off_t)(at + got));
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return false;
        got += some;
    }
    *h = hash_bytes(*h, block, (size_t)n);
    return true;
}

/* Its size and `blocks` blocks of it of `bytes` each, the first and the last among them. */
static bool hash_file(int fd, int64_t size, int64_t blocks, int64_t bytes, uint64_t *h)
{
    *h = shuffle_mix((uint64_t)size);
    const int64_t whole = (size + bytes - 1) / bytes, n = whole < blocks ? whole : blocks;
    for (int64_t i = 0; i < n; i++) {
        const int64_t block =
            n == 1 ? 0 : (whole - 1) / (n - 1) * i + (whole - 1) % (n - 1) * i / (n - 1);
        const int64_t at = block * bytes, some = size - at < bytes ? size - at : bytes;
        if (!read_block(fd, at, some, h)) return false;
        position_moved();
    }
    return true;
}

/* ── the program ─────────────────────────────────────────────────────────────── */

struct value {
    const char *name;
    double value;
    bool is_hash;            /* it says nothing to a reader */
    const char *const *word; /* of a key that is a word: by the value; NULL behind the last */
};

enum { VALUES = 64 };
struct values {
    struct value at[VALUES];
    int n;
};

static void add(struct values *v, const char *name, double value)
{
    if (v->n == VALUES) fail_now("more than %d values of a program are compared", VALUES);
    v->at[v->n++] = (struct value){name, value, false, NULL};
}

static void add_hash(struct values *v, const char *name, uint64_t h)
{
    double halves[HALVES];
    put_hash(halves, h);
    for (int i = 0; i < HALVES; i++) {
        add(v, name, halves[i]);
        v->at[v->n - 1].is_hash = true;
    }
}

static void add_word(struct values *v, const char *name, const char *const *word, int which)
{
    add(v, name, which);
    v->at[v->n - 1].word = word;
}

uint64_t agree_own_program(void)
{
    static uint64_t h;
    struct stat s;
    if (h) return h;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0 || !hash_file(fd, s.st_size, INT64_MAX, BLOCK, &h))
        fail_note("cannot read this trainer's own program: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return h;
}

static uint64_t hash_of_names(const char *const *name, int n)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++) h = shuffle_mix(h ^ hash_text(name[i]));
    return h;
}

static void plan_values(struct values *v)
{
    static const char *const owners[] = {"shard", "all", NULL};
    static const char *const types[] = {[TYPE_F32] = "fp32", [TYPE_BF16] = "bf16", NULL};
    static const char *const rates[] = {[RATE_CONSTANT] = "constant",
                                        [RATE_COSINE] = "cosine",
                                        [RATE_LINEAR] = "linear",
                                        [RATE_WSD] = "wsd",
                                        NULL};
    static const char *const shapes[] = {
        [SHAPE_LINEAR] = "linear", [SHAPE_SQRT] = "sqrt", [SHAPE_COSINE] = "cosine", NULL};
    static const char *const orders[] = {
        [ORDER_SEQUENTIAL] = "sequential", [ORDER_SHUFFLED] = "shuffled", NULL};
    static const char *const documents[] = {"packed", "separate", NULL};
    static const char *const actions[] = {
        [NONFINITE_STOP] = "stop", [NONFINITE_SKIP] = "skip", NULL};
    const struct program *p = &program;
    add(v, "the number of parameters", (double)p->parameters);
    add(v, "model.vocab", (double)p->vocabulary);
    add(v, "mesh.fsdp", (double)p->fsdp);
    add(v, "mesh.dp", (double)p->dp);
    add_word(v, "mesh.optimizer", owners, p->parts > 0);
    add(v, "batch.sequence", (double)p->sequence);
    add(v, "batch.local", (double)p->local);
    add(v, "batch.global", (double)p->global);
    add_hash(v, "the device", hash_text(p->device));
    add_word(v, "precision.compute", types, (int)p->compute_type);
    add(v, "optimizer.lr", p->lr);
    add(v, "optimizer.betas[0]", p->beta1);
    add(v, "optimizer.betas[1]", p->beta2);
    add_word(v, "schedule", rates, (int)p->schedule);
    add(v, "schedule.warmup", (double)p->warmup);
    add(v, "schedule.warmup_from", p->warmup_from);
    add(v, "schedule.warmup_to", p->warmup_to);
    add_word(v, "schedule.decay_shape", shapes, (int)p->decay_shape);
    add(v, "schedule.steps", (double)p->schedule_steps);
    add(v, "schedule.decay", (double)p->decay);
    add(v, "schedule.floor", p->floor);
    add_hash(v, "data.train", hash_of_names(p->data_train, p->data_trains));
    add(v, "data.format", (double)p->data_format);
    add_word(v, "data.order", orders, (int)p->data_order);
    add(v, "data.seed", (double)p->data_seed);
    add(v, "data.ignore", p->has_ignore ? (double)p->ignore : -1);
    add_word(v, "data.documents", documents, p->separate);
    add(v, "data.end_token", p->separate ? (double)p->end_token : -1);
    add_hash(v, "init.from", hash_text(p->init_from));
    add(v, "init.seed", (double)p->init_seed);
    add_word(v, "run.nonfinite", actions, (int)p->nonfinite);
    add(v, "run.timeout", p->timeout_seconds);
}

static void option_values(struct values *v, const struct options *o)
{
    add(v, "--steps", (double)o->steps);
    add_hash(v, "--final", hash_text(o->final));
    add_hash(v, "--probe", hash_text(o->probe));
    add_hash(v, "--trace", hash_text(o->trace));
    add_hash(v, "--compare", hash_text(o->compare));
    add(v, "--profile", (double)o->profile);
    add_hash(v, "--checkpoint-dir", hash_text(o->checkpoint_dir));
    add(v, "--fresh", o->fresh);
    add_hash(v, "--preflight", hash_text(o->preflight));
    add(v, "--sample", (double)o->sample);
    add_hash(v, "--prompt", hash_text(o->prompt));
    add(v, "--temperature", o->temperature);
    add(v, "--seed", (double)o->seed);
    add(v, "--resume", o->resume ? (double)o->resume_step : -2);
}

/* Another version may have a value for which this one has no word. */
static const char *word_of(const struct value *x, double value)
{
    for (int i = 0; x->word[i]; i++)
        if (!(value < i) && !(value > i)) return x->word[i];
    return "another word";
}

static void compare_values(const struct values *v, const double *first)
{
    for (int i = 0; i < v->n && !fail_noted(); i++) {
        const struct value *x = &v->at[i];
        if (!(x->value < first[i]) && !(x->value > first[i])) continue;
        if (x->is_hash)
            fail_note("does not run what rank 0 runs: %s differs", x->name);
        else if (x->word)
            fail_note("does not run what rank 0 runs: %s is %s, rank 0 has %s", x->name,
                      word_of(x, x->value), word_of(x, first[i]));
        else
            fail_note("does not run what rank 0 runs: %s is %.17g, rank 0 has %.17g", x->name,
                      x->value, first[i]);
    }
}

void agree_program(const struct options *o)
{
    struct values v = {.n = 0};
    double mine[VALUES];
    plan_values(&v);
    option_values(&v, o);
    /* last: what has a name is told by it */
    add_hash(&v, "the trainer (another build of it)", agree_own_program());
    for (int i = 0; i < v.n; i++) mine[i] = v.at[i].value;
    world_agree();
    double *all = ROOM(double, (int64_t)world.size *VALUES);
    /* ranks of another version of the runtime must not be asked for as many numbers */
    double count[1] = {(double)v.n};
    world_exchange(count, 1, all);
    if ((int)all[0] != v.n)
        fail_note("does not run what rank 0 runs: it was built by another version of planc");
    world_agree();
    world_exchange(mine, v.n, all);
    compare_values(&v, all);
    world_agree();
}

/* ── files ───────────────────────────────────────────────────────────────────── */

/* Its share of BLOCKS_OF_ALL. */
static int64_t blocks_of(int64_t bytes, double total)
{
    const int64_t blocks = (int64_t)(BLOCKS_OF_ALL * (double)bytes / total);
    return blocks < 2 ? 2 : blocks;
}

/* Whether all ranks see these files through one kernel, as the same ones: then they hold the same
 * for every rank at any time. */
static bool are_one(const struct agreed_file *file, int64_t n)
{
    double mine[HALVES], *all = ROOM(double, (int64_t)world.size *HALVES);
    uint64_t h = 0;
    bool same = world.one_host;
    for (int64_t i = 0; i < n; i++) {
        struct stat s = {0};
        if (fstat(file[i].fd, &s) != 0) same = false;
        const uint64_t place[2] = {(uint64_t)s.st_dev, (uint64_t)s.st_ino};
        h = hash_bytes(h, place, sizeof place);
    }
    put_hash(mine, h);
    if (!same) mine[0] = mine[1] = -1 - world.rank;
    world_exchange(mine, HALVES, all);
    for (int64_t i = 0; i < HALVES * (int64_t)world.size; i++)
        same = same && !(all[i] < all[i % HALVES]) && !(all[i] > all[i % HALVES]);
    return same;
}

/* The most ranks of a host; 0: not asked yet. */
static int most_of_a_host;

int agree_shift(int64_t turn)
{
    /* ranks fill one host after the other, so none this far away is of the same */
    const int least = most_of_a_host > 0 && 2 * most_of_a_host <= world.size ? most_of_a_host : 1;
    return least + (int)(turn % (world.size - 2 * least + 1));
}

static void ask_hosts(void)
{
    double mine = world.host_size, *all = ROOM(double, world.size);
    world_exchange(&mine, 1, all);
    for (int r = 0; r < world.size; r++)
        if ((int)all[r] > most_of_a_host) most_of_a_host = (int)all[r];
}

bool agree_files(const char *what, const struct agreed_file *file, int64_t n)
{
    enum { NUMBERS = 1 + HALVES }; /* of one file, or of how many there are and of all */
    double mine[NUMBERS], *all = ROOM(double, (int64_t)world.size *NUMBERS), total = 0;
    uint64_t *hash = ROOM(uint64_t, n), together = 0;
    const bool many = n > MANY_FILES;
    for (int64_t i = 0; i < n; i++) total += (double)file[i].bytes;
    const bool whole = total <= (double)BLOCK * BLOCKS_OF_ALL;
    for (int64_t i = 0; i < n && !fail_noted(); i++) {
        errno = 0;
        if (!hash_file(file[i].fd, file[i].bytes,
                       whole  ? INT64_MAX
                       : many ? 2
                              : blocks_of(file[i].bytes, total),
                       many ? SMALL_BLOCK : BLOCK, &hash[i]))
            fail_note("%s: %s", file[i].path, errno ? strerror(errno) : "has become shorter");
        together = shuffle_mix(together ^ hash[i]) + (uint64_t)i;
    }
    world_agree();
    if (!most_of_a_host) ask_hosts();
    mine[0] = (double)n;
    put_hash(mine + 1, together);
    world_exchange(mine, NUMBERS, all);
    bool same = true;
    for (int64_t i = 0; i < NUMBERS * (int64_t)world.size; i++)
        same = same && !(all[i] < all[i % NUMBERS]) && !(all[i] > all[i % NUMBERS]);
    if (same) return whole || world.size == 1 || are_one(file, n);
    if ((int64_t)all[0] != n)
        fail_note("%s: there are %lld files, rank 0 has %lld", what, (long long)n,
                  (long long)all[0]);
    world_agree();
    for (int64_t i = 0; i < n; i++) {
        mine[0] = (double)file[i].bytes;
        put_hash(mine + 1, hash[i]);
        world_exchange(mine, NUMBERS, all);
        if ((int64_t)all[0] != file[i].bytes)
            fail_note("%s: %s has %lld bytes, rank 0's has %lld", what, file[i].path,
                      (long long)file[i].bytes, (long long)all[0]);
        else if (mine[1] < all[1] || mine[1] > all[1] || mine[2] < all[2] || mine[2] > all[2])
            fail_note("%s: %s has %lld bytes as rank 0's, but other ones", what, file[i].path,
                      (long long)file[i].bytes);
        world_agree();
    }
    return false;
}
