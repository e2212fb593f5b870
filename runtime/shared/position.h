/* The page of positions that the ranks of one host share: written by position.c, read by
 * watchdog.c. What the rest of the runtime calls (position_set, position_wait, ...) is in
 * trainer.h. */
#ifndef PLANC_POSITION_H
#define PLANC_POSITION_H

#include "trainer.h"

struct position {
    _Alignas(128) _Atomic int64_t moved, alive; /* nanoseconds of the monotonic clock */
    _Atomic int64_t training_step, iteration;
    _Atomic int step, rank, phase, waiting;
};
struct position_page {
    _Atomic int claimed;
    struct position at[];
};

#define POSITION_GET(p, field) atomic_load_explicit(&(p)->field, memory_order_acquire)

int64_t position_now(void); /* nanoseconds of the monotonic clock */
void position_alive(void);  /* this process runs: stamped by the watchdog's own thread */
const struct position *position_mine(void);
/* From now on this rank writes into slot `slot` of a zeroed page. */
void position_publish(struct position_page *shared, int slot, int rank);
/* Every rank has a position there: position_claim and position_claimed use the page too. */
void position_share(struct position_page *shared);
/* The page is about to go: positions are written to memory of this process again. */
void position_withdraw(void);
/* A position in words, at schedule step `step` and iteration `i` (-1: none). Returns `text`. */
const char *position_place(const struct position *p, int step, int64_t i, char text[256]);

#endif
