/* Observers of a schedule: --compare, --profile, --trace. They sit between a device and its kernels
 * and know no device: a device reports "now this kernel" and "now this transfer", and takes time
 * stamps when asked to. In a step that is not observed it calls its kernels directly and may record
 * and replay them. */
#ifndef WATCH_H
#define WATCH_H

#include "trainer.h"

/* ── watch.c, for devices ────────────────────────────────────────────────────── */
/* Set for whole steps. While it is, kernels go through watch_kernel, transfers between watch_begin
 * and watch_end, and nothing is recorded or replayed. */
extern bool watching;
enum watch_lane { WATCH_COMPUTE, WATCH_GATHER, WATCH_REDUCE, WATCH_REPLICAS, WATCH_LANES };
/* Calls the kernel, once. On the thread that issues compute. part: of what the kernel's flops and
 * bytes count, this call's; below 1 for one of several stretches of a shard. */
void watch_kernel(struct device *d, const struct kernel *k, void *const *address,
                  const struct stretch *s, double part);
/* What the compute lane does beside kernels, where the host is the device: it issues transfers and
 * waits for them. Only --profile-out reads these marks. In the place of a unit they have the number
 * of the transfer, by issue. */
#define WATCH_ISSUE "issue"
#define WATCH_WAIT "wait"
/* Around what is put on a lane of transfers, by whichever thread stamps that lane: "gather", unit
 * instance 7 (-1: none). watch_begin's answer goes to watch_end. */
int64_t watch_begin(struct device *d, enum watch_lane lane, const char *what, int64_t unit);
void watch_end(struct device *d, enum watch_lane lane, int64_t mark);
/* Of a reduction: which of a step's micro-batches it is of, MICRO_FIRST and MICRO_LAST. */
void watch_micro(int64_t mark, int micro);

/* ── what a device gives (device_cpu.c, device_cuda.c) ───────────────────────── */
/* Room for n time stamps, after the first step at the latest; false: noted. Stamp `number` is taken
 * when all that the lane was given before is done, and read after device_drain: seconds on the
 * scale of clock_seconds(). */
bool device_stamps(struct device *d, int64_t n);
void device_stamp(struct device *d, enum watch_lane lane, int64_t number);
double device_stamp_seconds(struct device *d, int64_t number);
/* To measure what the device can do at best, on the compute lane: bytes copied within it; c[n,n] =
 * a b, a and b of the type, c of it or F32, by whatever does the dense products of training; false:
 * nothing does. */
void device_copy(struct device *d, void *to, const void *from, int64_t bytes);
bool device_square_product(struct device *d, enum element_type type, int64_t n, const void *a,
                           const void *b, void *c);

/* ── for the trainer ─────────────────────────────────────────────────────────── */
/* After device_open, before anything is written into the arena. False: noted. Collective. */
bool watch_open(struct device *d, const struct options *o, int64_t first);
/* before a step's first part is played; steps are counted from the first of this process */
void watch_step(int64_t step);
/* after the drain; its duration so far */
void watch_step_end(struct device *d, int64_t step, double seconds);
/* when the ranks have agreed on the step: all that it took */
void watch_step_took(int64_t step, double seconds);
/* Reports; every rank calls it. False: a comparison found something, or a file could not be written
 * (noted). */
bool watch_close(struct device *d);

/* ── between watch.c and its observers ────────────────────────────────────────── */
/* Something that ran: a kernel, or a transfer of a unit. Seconds on the scale of
 * clock_seconds(). */
struct mark {
    const struct kernel *kernel;
    const char *what;
    int64_t unit;
    enum watch_lane lane;
    int micro;   /* watch_micro's */
    double part; /* watch_kernel's */
    double from, to;
};

bool compare_open(const char *path); /* loads DIR/reference.so; false: noted */
void compare_before(struct device *d, const struct kernel *k, void *const *address,
                    const struct stretch *s);
void compare_after(struct device *d, const struct kernel *k, void *const *address,
                   const struct stretch *s);
bool compare_close(void); /* the table; false when a kernel is beyond its bound */

/* measures the device's peaks in the arena, and clears what it used */
void profile_open(struct device *d);
void profile_step(const struct mark *mark, int64_t marks, double seconds);
void profile_close(void); /* the table */

/* profile_out.c: the file of --profile-out. False: noted. */
bool profile_out_open(const char *path, int64_t steps);
/* `played`: seconds of the step's schedule; then those of all of the step. */
void profile_out_step(const struct mark *mark, int64_t marks, double played);
void profile_out_took(double seconds);
bool profile_out_close(void);

bool trace_open(const char *path); /* false: noted */
void trace_step(const struct mark *mark, int64_t marks, int64_t step);
bool trace_close(void); /* every rank; false: noted */

#endif
