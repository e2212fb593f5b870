/* The lanes of a step as blocks, wherever they come from: the simulated run or a measured trace. */
#ifndef PLANC_REPORT_LANES_H
#define PLANC_REPORT_LANES_H

#include "report/sections.h"

enum { LANES = LANE_REPLICAS + 1 };

/* Neighbours on a lane that do one thing: kernels of one layer of a region, or a transfer.
 * Picoseconds since the step began. */
struct block {
    const char *name;
    enum part_of_step part; /* of compute */
    int64_t layer, from, to;
    int kernels;
    bool waited; /* nothing ran: compute waited for a collective */
};
typedef VECTOR(struct block) block_list;

struct recording {
    block_list lane[LANES];
    int64_t end;   /* of compute so far */
    int64_t begin; /* of the last micro-batch: what is drawn begins there */
    enum part_of_step part;
    int micro_batches;
};
struct recording recording_begin(void);
/* A kernel that ran. ready: when compute turned to it; before that it waited, if that is later than
 * the end of the one before. */
void recording_compute(struct recording *r, const struct part_region *region, int64_t layer,
                       int64_t ready, int64_t from, int64_t to);
void recording_transfer(struct recording *r, enum lane lane, const char *name, int64_t layer,
                        int64_t from, int64_t to);
/* The simulated step of a rung; *end: of its last work. */
struct recording recording_of(const struct rung *r, int64_t *end);
/* How many lanes are drawn, the replicas' only if it has work; their names from the top. */
int lanes_rows(const struct recording *r);
extern const char *const lanes_names[];
/* The rectangles, in a drawing of 1000 x 1000. tips: with words for the pointer. */
void lanes_draw(struct text *t, const struct recording *r, const struct scale *x, bool tips);
/* With axes and legend. */
void lanes_chart(struct text *t, const struct recording *r, int64_t end, const char *name);

#endif
