/* Matrix products of packed panels, for the type of operands of the file that includes this one:
 * gemm_bf16.c or gemm_f32.c. A word is what an instruction multiplies by for one row: a pair of
 * neighbouring k in BF16 (the lower half is of the even one), one k in F32. A tile of 12 x 32 sums
 * stays in registers while words are added.
 *
 * A library copies operands to panels, then multiplies, then copies again, and waits for memory
 * each time it copies. Here tiles and copies go on together: between steps of a tile, a vector of
 * the next rows of A goes to a panel for the first cache, one of the next columns of B to panels
 * for the second, and the lines that are copied a little later are fetched, as is the tile's place
 * in C. Only a B whose stored rows go along k is copied at once: its words have to be transposed.
 * Its lines are fetched while the columns before it are multiplied.
 *
 * The order of a sum depends on k alone, so the same shape gives the same bits: a sum is made in
 * one pass over k or in several, each of them one chain of additions from zero that is then added
 * to what the passes before it have made. The compute lane is one thread, so one set of panels
 * serves all products of a type.
 *
 * The file that includes this one defines
 *   ELEMENTS     of a word: 2 or 1; with 2, sums can also be rounded to BF16
 *   element      their type
 *   DEEP         words of one pass at most, where A goes along k
 *   PASS         words of one pass at most, where A does not
 *   across()     of sixteen lines, one word each
 *   add_product  to sixteen sums, of a word of each
 *   pass_of()    elements of the pass that begins at an element */
#ifndef GEMM_PANELS_H
#define GEMM_PANELS_H

#include "cpu/avx512.h"
#include "cpu/gemm_bf16.h"

/* A tile has 24 registers of sums; two hold a row of B's panel and one a word of A. */
enum {
    ROWS = 12,
    COLUMNS = 32,
    LANES = 16,
    GROUP = 4 * ROWS, /* rows that are copied together where A is transposed: whole lines */
    STEPS = 8,        /* of a tile, between copies */
    AHEAD = 24,       /* steps of B that are fetched from the second cache early */
    NEAR_A = 6,       /* words of k that a transposed A is fetched early */
    NEAR_B = 4,       /* the same of a B that is not */
    PAD = LANES,      /* a store of a vector may reach over the end */
    STRIDE = DEEP + 5 * LANES, /* between rows of A: they fall on different lines of the cache */
    A_ALONG = ROWS * STRIDE,
    A_ACROSS = 4 * (ROWS * PASS + PAD),
    A_WORDS = A_ALONG > A_ACROSS ? A_ALONG : A_ACROSS,
    B_WORDS = 2304 * COLUMNS, /* 192 columns of PASS words, while the next ones are copied */
    B_ALONE = 4096 * COLUMNS  /* where none are copied meanwhile; less than two B_WORDS */
};
typedef uint32_t word;
static word panel_a[2][A_WORDS + PAD] __attribute__((aligned(64)));
static word panels_b[2 * B_WORDS + (AHEAD + STEPS) * COLUMNS] __attribute__((aligned(64)));

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* One operand: where it begins, elements between its stored rows, whether such a row goes along k
 * (A as it is, B transposed). */
struct side {
    const element *at;
    int64_t ld, k;
    bool along;
};

static int64_t words_of(struct side s) { return parts(s.k, ELEMENTS); }

/* Line i (a row of A, a column of B) at word p. */
static const element *side_at(struct side s, int64_t i, int64_t p)
{
    return s.at + (s.along ? i * s.ld + ELEMENTS * p : ELEMENTS * p * s.ld + i);
}

/* Of a vector of words along k, from word p on: the halves of words that exist. */
static __mmask32 halves(struct side s, int64_t p)
{
    return (__mmask32)((1ull << smaller(32, 2 / ELEMENTS * (s.k - ELEMENTS * p))) - 1);
}

static __mmask16 lanes(int64_t there)
{
    return (__mmask16)(there >= LANES ? 0xffff : there > 0 ? (1u << there) - 1 : 0);
}

/* ── columns of B ────────────────────────────────────────────────────────────── */

/* Sixteen columns of a B that goes along k, of which `lines` exist, from column j on: word p at
 * to[32 p]. Those that are missing become zero. */
FOR_AVX512 static void turn_half(struct side b, int64_t j, int64_t lines, word *to)
{
    const int64_t words = words_of(b);
    b.along = true; /* as the compiler does not know: it would choose an address for every load */
    for (int64_t p = 0; p < words; p += LANES) {
        const __mmask32 there = halves(b, p);
        __m512i x[LANES];
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; i++)
            x[i] = i < lines ? _mm512_maskz_loadu_epi16(there, side_at(b, j + i, p))
                             : _mm512_setzero_si512();
        turn(x);
        for (int64_t i = LANES; i < lines && i < 2 * LANES; i++)
            _mm_prefetch((const char *)side_at(b, j + i, p), _MM_HINT_T0);
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; i++)
            if (p + i < words) _mm512_store_si512(to + (p + i) * COLUMNS, x[i]);
    }
}

/* Panels of 32 columns: word p of a column at [32 p]. */
static void turn_columns(struct side b, int64_t j0, int64_t columns, word *to)
{
    const int64_t words = words_of(b);
    for (int64_t j = 0; j < columns; j += COLUMNS)
        for (int64_t half = 0; half < COLUMNS; half += LANES)
            turn_half(b, j0 + j + half, columns - j - half, to + j * words + half);
}

/* Lines of columns that will be turned: `left` more, column by column. They are fetched to the
 * second cache while the tiles of other columns are made. */
struct lines {
    const char *at;
    int64_t line, lines, left; /* the next one of a column, how many a column has, all */
    int64_t skip;              /* bytes to the next column */
};

static struct lines lines_of(struct side b, int64_t j0, int64_t columns)
{
    enum { LINE = 64, SIZE = sizeof(element) };
    const int64_t lines = parts(b.k * SIZE, LINE);
    return (struct lines){.at = (const char *)side_at(b, j0, 0),
                          .lines = lines,
                          .left = lines * columns,
                          .skip = b.ld * SIZE - LINE * (lines - 1)};
}

static void lines_fetch(struct lines *f, int64_t many)
{
    for (int64_t n = smaller(many, f->left); n > 0; n--) {
        const bool end = f->line == f->lines - 1;
        _mm_prefetch(f->at, _MM_HINT_T1);
        f->at += end ? f->skip : 64;
        f->line = end ? 0 : f->line + 1;
        f->left--;
    }
}

/* The same panels from a B that does not go along k: `left` more vectors, by rows. */
struct columns {
    const element *from;
    word *to, *row;
    int64_t vector, vectors,
        left;                /* the next one of a row, how many a row has, all that are left */
    int64_t skip, ld, early; /* elements: to the next pair of rows, between rows, to a fetch */
    int64_t panel;
    __mmask16 last[2]; /* of the last two of a row, the columns that exist */
    bool odd;
};

static struct columns columns_of(struct side b, int64_t j0, int64_t columns, word *to)
{
    const int64_t words = words_of(b), vectors = 2 * parts(columns, COLUMNS);
    return (struct columns){
        .from = side_at(b, j0, 0),
        .to = to,
        .row = to,
        .vectors = vectors,
        .left = words * vectors,
        .skip = ELEMENTS * b.ld - LANES * vectors,
        .ld = b.ld,
        .early = ELEMENTS * NEAR_B * b.ld,
        .panel = COLUMNS * words - LANES,
        .last = {lanes(columns - LANES * (vectors - 2)), lanes(columns - LANES * (vectors - 1))},
        .odd = b.k % ELEMENTS != 0};
}

INLINE_FOR_AVX512 void columns_copy(struct columns *c)
{
    const bool end = c->vector == c->vectors - 1;
    const __mmask16 there = end ? c->last[1] : c->vector == c->vectors - 2 ? c->last[0] : 0xffff;
    _mm_prefetch((const char *)(c->from + c->early), _MM_HINT_T0);
    if (ELEMENTS > 1) _mm_prefetch((const char *)(c->from + c->early + c->ld), _MM_HINT_T0);
    _mm512_store_si512(c->to, across(c->from, c->ld, c->odd && c->left <= c->vectors, there));
    c->row += end ? COLUMNS : 0;
    c->to = end ? c->row : c->to + (c->vector % 2 ? c->panel : LANES);
    c->from += LANES + (end ? c->skip : 0);
    c->vector = end ? 0 : c->vector + 1;
    c->left--;
}

FOR_AVX512 static void columns_rest(struct columns *c)
{
    while (c->left > 0) columns_copy(c);
}

/* ── rows of A ───────────────────────────────────────────────────────────────── */

/* Twelve rows that go along k lie STRIDE apart. Of others, up to 48 make blocks of twelve: word p
 * of a row at [12 p]. A vector of sixteen rows then ends in the next block; what a store writes
 * over the end of a block's word is written again, by the next vector or word. */
struct rows {
    const element *from;
    word *to;
    int64_t vector, vectors, left; /* as in struct columns */
    int64_t skip, ld, early;
    int64_t skip_to, block; /* words: from the end of a row to the next, between blocks */
    __mmask32 last;
    bool odd;
};

static int64_t block_words(int64_t words) { return ROWS * words + PAD; }

static struct rows rows_of(struct side a, int64_t i, int64_t rows, word *to)
{
    const int64_t words = words_of(a);
    struct rows r = {.from = side_at(a, i, 0), .to = to, .ld = a.ld};
    if (a.along) {
        r.vectors = parts(words, LANES);
        r.left = rows * r.vectors;
        r.skip = a.ld - ELEMENTS * LANES * r.vectors;
        r.early = ROWS * a.ld;
        r.skip_to = STRIDE - LANES * r.vectors;
        r.last = halves(a, LANES * (r.vectors - 1));
    } else {
        r.vectors = parts(rows, LANES);
        r.left = words * r.vectors;
        r.skip = ELEMENTS * a.ld - LANES * r.vectors;
        r.early = ELEMENTS * NEAR_A * a.ld;
        r.skip_to = ROWS;
        r.block = block_words(words);
        r.last = lanes(rows - LANES * (r.vectors - 1));
        r.odd = a.k % ELEMENTS != 0;
    }
    return r;
}

INLINE_FOR_AVX512 void rows_copy(struct rows *r, const bool along)
{
    static const int32_t beyond[3][LANES] = {{12, 13, 14, 15},
                                             {8, 9, 10, 11, 12, 13, 14, 15},
                                             {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    const bool end = r->vector == r->vectors - 1;
    _mm_prefetch((const char *)(r->from + r->early), _MM_HINT_T0);
    if (along) {
        _mm512_storeu_si512(r->to, _mm512_maskz_loadu_epi16(end ? r->last : 0xffffffffu, r->from));
        r->to += LANES + (end ? r->skip_to : 0);
    } else {
        if (ELEMENTS > 1) _mm_prefetch((const char *)(r->from + r->early + r->ld), _MM_HINT_T0);
        const __m512i x = across(r->from, r->ld, r->odd && r->left <= r->vectors,
                                 (__mmask16)(end ? r->last : 0xffff)),
                      rest = _mm512_permutexvar_epi32(_mm512_loadu_si512(beyond[r->vector]), x);
        word *to = r->to + r->vector * r->block;
        _mm512_storeu_si512(to + (LANES - ROWS) * r->vector, x);
        _mm512_storeu_si512(to + r->block, rest);
        r->to += end ? r->skip_to : 0;
    }
    r->from += (along ? ELEMENTS : 1) * LANES + (end ? r->skip : 0);
    r->vector = end ? 0 : r->vector + 1;
    r->left--;
}

FOR_AVX512 static void rows_rest(struct rows *r, bool along)
{
    while (r->left > 0)
        if (along)
            rows_copy(r, true);
        else
            rows_copy(r, false);
}

/* ── tiles ───────────────────────────────────────────────────────────────────── */

/* rows x columns sums of `words` words each, and between two steps so many copies. */
struct tile {
    const word *a, *b;
    int64_t words, rows, columns, copies_a, copies_b;
    char *c;
    int64_t ldc; /* bytes */
};

INLINE_FOR_AVX512 void multiply(const int rows, const bool along, const word *a, const word *b,
                                __m512 sum[ROWS][2])
{
    const __m512i left = _mm512_load_si512(b), right = _mm512_load_si512(b + LANES);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        const __m512i one = _mm512_set1_epi32((int32_t)a[along ? i * STRIDE : i]);
        sum[i][0] = add_product(sum[i][0], one, left);
        sum[i][1] = add_product(sum[i][1], one, right);
    }
}

/* `rows` is as many as the tile has, or a few more, whose sums are of anything and dropped. */
INLINE_FOR_AVX512 void tile(const int rows, const bool along, const enum pairs_result result,
                            const struct tile *t, struct rows *next_a, struct columns *next_b)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    const int64_t size = result == PAIRS_ROUNDED ? 2 : 4, words = t->words, ldc = t->ldc;
    const word *restrict a = t->a, *restrict b = t->b;
    char *place = t->c, *const end = t->c + t->rows * ldc;
    struct rows ra = *next_a;
    struct columns cb = *next_b;
    int64_t p = 0;
    for (; p + STEPS <= words; p += STEPS) {
        __builtin_prefetch(place, 1);
        __builtin_prefetch(place + COLUMNS * size - 1, 1);
        place += ldc;
        place = place == end ? t->c : place;
#pragma GCC unroll 8
        for (int step = 0; step < STEPS; step++) {
            _mm_prefetch((const char *)(b + (step + AHEAD) * COLUMNS), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + (step + AHEAD) * COLUMNS + LANES), _MM_HINT_T0);
            multiply(rows, along, a + step * (along ? 1 : ROWS), b + step * COLUMNS, sum);
        }
        for (int64_t n = smaller(t->copies_a, ra.left); n > 0; n--) rows_copy(&ra, along);
        for (int64_t n = smaller(t->copies_b, cb.left); n > 0; n--) columns_copy(&cb);
        a += STEPS * (along ? 1 : ROWS);
        b += STEPS * COLUMNS;
    }
    for (; p < words; p++, a += along ? 1 : ROWS, b += COLUMNS) multiply(rows, along, a, b, sum);
    *next_a = ra;
    *next_b = cb;
    const __mmask16 first = lanes(t->columns), second = lanes(t->columns - LANES);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        if (i == t->rows) break;
        char *to = t->c + i * ldc;
        if (result == PAIRS_ROUNDED) {
            _mm512_mask_storeu_epi16(to, (__mmask32)first | (__mmask32)second << LANES,
                                     (__m512i)_mm512_cvtne2ps_pbh(sum[i][1], sum[i][0]));
            continue;
        }
        if (result == PAIRS_ADDED) {
            sum[i][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(first, to), sum[i][0]);
            sum[i][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(second, to + 4 * LANES), sum[i][1]);
        }
        _mm512_mask_storeu_ps(to, first, sum[i][0]);
        _mm512_mask_storeu_ps(to + 4 * LANES, second, sum[i][1]);
    }
}

typedef void tile_function(const struct tile *t, struct rows *a, struct columns *b);
#define TILE(name, along, result)                                                        \
    FOR_AVX512 static void name(const struct tile *t, struct rows *a, struct columns *b) \
    {                                                                                    \
        if (t->rows > 8)                                                                 \
            tile(12, along, result, t, a, b);                                            \
        else if (t->rows > 4)                                                            \
            tile(8, along, result, t, a, b);                                             \
        else                                                                             \
            tile(4, along, result, t, a, b);                                             \
    }
#if ELEMENTS == 2
TILE(rounded, true, PAIRS_ROUNDED)
TILE(rounded_across, false, PAIRS_ROUNDED)
#else
#define rounded NULL
#define rounded_across NULL
#endif
TILE(set, true, PAIRS_SET)
TILE(set_across, false, PAIRS_SET)
TILE(added, true, PAIRS_ADDED)
TILE(added_across, false, PAIRS_ADDED)
#undef TILE
/* by whether A goes along k, and the result */
static tile_function *const tiles[2][3] = {{rounded_across, set_across, added_across},
                                           {rounded, set, added}};

/* ── products ────────────────────────────────────────────────────────────────── */

/* What one set of panels of B serves: some of its columns, in one pass over elements of k. */
struct part {
    struct side a, b; /* from the first element of the pass on */
    int64_t column, columns, from, words;
};

static struct part part_of(struct side a, struct side b, int64_t column, int64_t columns,
                           int64_t from, enum pairs_result result)
{
    const int64_t k = a.k;
    a.at += from * (a.along ? 1 : a.ld);
    b.at += from * (b.along ? 1 : b.ld);
    a.k = b.k = pass_of(result, k, from);
    return (struct part){a, b, column, columns, from, words_of(a)};
}

/* Tiles of a part, row by row of A, while what the next rows and the next part need is copied. */
struct work {
    int64_t m, ldc, size; /* of C; bytes of an element */
    char *c;
    struct rows a;
    struct columns b;
    struct lines lines; /* of the next part, where B goes along k */
    int side_a;         /* which panel has the rows that are multiplied */
};

static void part_product(struct work *w, const struct part *p, const struct part *next,
                         const word *b, tile_function *tile_of)
{
    const bool along = p->a.along;
    const int64_t group = along ? ROWS : GROUP, panels = parts(p->columns, COLUMNS),
                  stops = panels * (p->words / STEPS), /* of a row of tiles */
        all = parts(w->m, ROWS) * stops;
    const int64_t copies_b = all ? parts(w->b.left, all) : 0,
                  fetches = parts(w->lines.left, parts(w->m, ROWS) * panels);
    for (int64_t i0 = 0; i0 < w->m; i0 += group, w->side_a = !w->side_a) {
        const int64_t here = smaller(group, w->m - i0), there = w->m - i0 - group,
                      some = parts(here, ROWS) * stops;
        if (there > 0)
            w->a = rows_of(p->a, i0 + group, smaller(group, there), panel_a[!w->side_a]);
        else if (next)
            w->a = rows_of(next->a, 0, smaller(group, w->m), panel_a[!w->side_a]);
        const int64_t copies_a = some ? parts(w->a.left, some) : 0;
        for (int64_t i = 0; i < here; i += ROWS)
            for (int64_t j = 0; j < panels; j++) {
                const struct tile t = {
                    .a = panel_a[w->side_a] + i / ROWS * (along ? 0 : block_words(p->words)),
                    .b = b + j * COLUMNS * p->words,
                    .words = p->words,
                    .rows = smaller(ROWS, here - i),
                    .columns = smaller(COLUMNS, p->columns - j * COLUMNS),
                    .copies_a = copies_a,
                    .copies_b = copies_b,
                    .c = w->c + (i0 + i) * w->ldc + (p->column + j * COLUMNS) * w->size,
                    .ldc = w->ldc};
                lines_fetch(&w->lines, fetches);
                tile_of(&t, &w->a, &w->b);
            }
        rows_rest(&w->a, along);
    }
}

static bool product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const element *a,
                    int64_t lda, const element *b, int64_t ldb, enum pairs_result result, void *c,
                    int64_t ldc)
{
    const int64_t size = result == PAIRS_ROUNDED ? 2 : 4;
    const struct side left = {a, lda, k, !ta}, right = {b, ldb, k, tb};
    struct part p = part_of(left, right, 0, n, 0, result);
    if (ta ? 4 * block_words(p.words) > A_WORDS : p.words > DEEP) return false;
    if (m == 0 || n == 0) return true;
    /* as many columns at a time as fit, in equal parts */
    const int64_t fit = (tb ? B_ALONE : B_WORDS) / (p.words ? p.words : 1) / COLUMNS * COLUMNS,
                  wide = parts(parts(n, parts(n, fit)), COLUMNS) * COLUMNS;
    struct work w = {m, ldc * size, size, c, .side_a = 0};
    p.columns = smaller(wide, n);
    w.a = rows_of(p.a, 0, smaller(ta ? GROUP : ROWS, m), panel_a[0]);
    rows_rest(&w.a, !ta);
    if (!tb) w.b = columns_of(p.b, 0, p.columns, panels_b);
    word *here = panels_b, *other = tb ? panels_b : panels_b + B_WORDS;
    for (bool more = true; more;) {
        const bool on = p.from + p.a.k < k; /* another pass for these columns */
        const int64_t column = on ? p.column : p.column + wide;
        more = column < n;
        struct part next = {0};
        if (more)
            next = part_of(left, right, column, smaller(wide, n - column), on ? p.from + p.a.k : 0,
                           result);
        if (tb)
            turn_columns(p.b, p.column, p.columns, here);
        else
            columns_rest(&w.b);
        if (more && tb) w.lines = lines_of(next.b, next.column, next.columns);
        if (more && !tb) w.b = columns_of(next.b, next.column, next.columns, other);
        const enum pairs_result now = result == PAIRS_SET && p.from ? PAIRS_ADDED : result;
        part_product(&w, &p, more ? &next : 0, here, tiles[!ta][now]);
        word *last = here;
        here = other, other = last, p = next;
    }
    return true;
}

#endif
