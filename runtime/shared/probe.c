/* --probe: what the first step computed, for comparison with another implementation: the logits of
 * sample 0 and the gradient norm of every stored tensor before clipping. Gradients are read after
 * the step; the update does not change them (the clipping coefficient is applied inside it). All
 * its memory is taken before the first step. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct {
    FILE *file;
    const char *path;
    float *logits;
    int64_t rows;
    const struct stored *sorted;
    double *square;
    bool wanted;
} probe;

bool probe_open(const char *path)
{
    probe.wanted = true;
    probe.path = path;
    probe.sorted = stored_sorted();
    probe.square = ROOM(double, stored_count());
    if (world.rank != 0) return true;
    probe.logits = ROOM(float, program.sequence *program.vocabulary);
    int fd = output_open("--probe", path, O_TRUNC);
    if (fd < 0) return false;
    probe.file = fdopen(fd, "w");
    if (!probe.file) return fail_note("--probe %s: %s", path, strerror(errno));
    static char buffer[1 << 16]; /* or stdio would take one after the first step */
    return setvbuf(probe.file, buffer, _IOFBF, sizeof buffer) == 0 ||
           fail_note("--probe %s: no buffer", path);
}

/* Logits may come in chunks of rows, in order; sample 0 is the first `sequence` of them. */
void probe_tap(struct device *d, const char *name, enum element_type type, const void *value,
               int64_t rows, int64_t columns)
{
    if (!probe.logits || probe.rows == program.sequence || strcmp(name, "logits") ||
        columns != program.vocabulary)
        return;
    int64_t n = program.sequence - probe.rows < rows ? program.sequence - probe.rows : rows;
    float *to = probe.logits + probe.rows * columns;
    /* of TYPE_BF16: upper halves of floats, read to where the last of them will lie and widened
     * from the first one on */
    const int64_t bytes = n * columns * (type == TYPE_BF16 ? 2 : 4);
    const uint16_t *half = (const uint16_t *)(void *)to + n * columns;
    device_read(d, (char *)to + (4 * n * columns - bytes), value, bytes);
    for (int64_t i = 0; i < n * columns && type == TYPE_BF16; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(to + i, &bits, sizeof *to);
    }
    probe.rows += n;
}

static void squares(struct device *d)
{
    float *some = device_staging(d);
    const int64_t most = program.staging_bytes / 4;
    const int64_t n = stored_count();
    for (int64_t t = 0; t < n; t++) {
        struct piece p = stored_piece(&probe.sorted[t], world.part);
        const int64_t at = gradient_at(&probe.sorted[t], p.at);
        double sum = 0;
        /* replicas hold the same gradients, or each has its part */
        const bool counts = world.rank == state_owner(world.part);
        for (int64_t done = 0; done < p.count && counts; done += most) {
            const int64_t count = p.count - done < most ? p.count - done : most;
            device_read(d, some, (float *)local(d, program.gradient) + at + done, 4 * count);
            for (int64_t i = 0; i < count; i++) sum += (double)some[i] * (double)some[i];
        }
        probe.square[t] = sum;
    }
    world_sum(probe.square, n);
}

/* JSON has no infinity: what is not finite is null. */
static void number(const char *before, double x)
{
    if (isfinite(x))
        fprintf(probe.file, "%s%.17g", before, x);
    else
        fprintf(probe.file, "%snull", before);
}

bool probe_write(struct device *d, double loss, double norm)
{
    if (!probe.wanted) return true;
    squares(d);
    if (world.rank != 0) return true;
    FILE *f = probe.file;
    number("{\"loss\":", loss);
    number(",\"grad_norm\":", norm);
    fprintf(f, ",\n\"grad_norms_step0\":{");
    char name[TENSOR_JSON_BYTES];
    for (int64_t n = 0; n < stored_count(); n++) {
        stored_name_json(&probe.sorted[n], name);
        fprintf(f, "%s\n%s:", n ? "," : "", name);
        number("", sqrt(probe.square[n]));
    }
    fprintf(f, "},\n\"logits_step0\":[");
    for (int64_t r = 0; r < probe.rows; r++) {
        fprintf(f, "%s\n", r ? "," : "");
        for (int64_t c = 0; c < program.vocabulary; c++)
            number(c ? "," : "[", (double)probe.logits[r * program.vocabulary + c]);
        fprintf(f, "]");
    }
    fprintf(f, "]}\n");
    bool fine = !ferror(f) && fflush(f) == 0;
    fine = fclose(f) == 0 && fine;
    probe.file = NULL;
    return fine || fail_note("--probe %s: %s", probe.path, output_why(errno));
}
