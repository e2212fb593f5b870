/* What a run tells while it runs: one JSON object per step for programs, a line for people, a
 * summary at the end. A value that is not known is left out, never 0. Loss and norm are printed
 * with all their digits, so that two runs that should be equal can be compared as text. */
#define _GNU_SOURCE
#include "checkpoint.h"
#include "metrics_file.h"
#include "output.h"
#include "tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 20, SMOOTHED = 10 };
/* A prediction that misses by this factor over more than so many steps rests on rates of another
 * machine. */
enum { FEW_STEPS = 5 };
#define FAR_OFF 1.5

static struct {
    int fd;
    bool tensorboard;
    const char *path;
    int64_t lost_from; /* the first step that is not in the file, and why; 0: none is missing */
    int lost_why;
    char *line;
    size_t size, used;
    double machine_flops;
    int64_t memory_limit, log_every, end;
    bool terminal, drawn;
    /* cross-entropies: the last ones, the sum of the first ones */
    double last[WINDOW], first_sum;
    double recent[SMOOTHED], recent_flops[SMOOTHED];
    int64_t recents;
    int64_t steps, counted, bare; /* counted: in the means; bare: without a target */
    /* the first step warms up and counts for nothing when there are others */
    double first_seconds, later_seconds, first_flops, later_flops;
    /* seconds, of the steps of which it is known */
    double exposed, exposed_of;
} out = {.fd = -1};

static double step_tokens(void) { return (double)(program.global * program.sequence); }

/* mpirun gives its ranks a pseudo-terminal even when its own output is a file: the parent's output
 * must be one too. */
static bool on_terminal(void)
{
    char link[64], target[64];
    snprintf(link, sizeof link, "/proc/%d/fd/1", (int)getppid());
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n < 0 ? 0 : n] = 0;
    return isatty(STDOUT_FILENO) &&
           (!strncmp(target, "/dev/pts/", 9) || !strncmp(target, "/dev/tty", 8));
}

int64_t metrics_count(void)
{
    int64_t n = 0;
    for (int i = 0; i < program.metrics; i++) n += program.metric[i].count;
    return n;
}

bool metrics_open(const struct options *o, int64_t first, double machine_flops,
                  int64_t memory_limit)
{
    out.machine_flops = machine_flops;
    out.memory_limit = memory_limit;
    out.log_every = o->log_every;
    out.end = o->steps;
    if (world.rank != 0) return true;
    out.terminal = on_terminal();
    out.path = o->metrics;
    out.size = (size_t)(2048 + 32 * metrics_count() + 64 * program.metrics);
    for (int i = 0; i < data_sources(); i++) out.size += 32 + 6 * strlen(program.source[i].name);
    out.line = room((int64_t)out.size);
    if (o->tensorboard) {
        int64_t tags = 0;
        for (int i = 0; i < program.metrics; i++) tags += (int64_t)strlen(program.metric[i].name);
        if (!tensorboard_open(o->tensorboard, first, tags, metrics_count())) return false;
        out.tensorboard = true;
    }
    if (!o->metrics) return true;
    if (!output_is_free("--metrics", o->metrics) ||
        !metrics_file_begin(o->metrics, first, checkpoint_branches(), out.line, out.size))
        return false;
    out.fd = output_open("--metrics", o->metrics, O_APPEND);
    struct stat s;
    if (out.fd >= 0 && fstat(out.fd, &s) == 0 && S_ISFIFO(s.st_mode))
        (void)fcntl(out.fd, F_SETFL, fcntl(out.fd, F_GETFL) | O_NONBLOCK);
    return out.fd >= 0;
}

/* ── the line of a step ──────────────────────────────────────────────────────── */

PRINTF_LIKE(1, 2) static void add(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out.line + out.used, out.size - out.used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= out.size - out.used)
        fail_now("a line of metrics is longer than %zu bytes", out.size);
    out.used += (size_t)n;
}

/* Every number has one name, in JSON and in TensorBoard. */
static void add_number(const char *key, double x)
{
    if (isfinite(x)) /* JSON has no other numbers */
        add(",\"%s\":%.17g", key, x);
    tensorboard_number(key, x);
}

/* One of a mixture's sources, whose name comes from outside. */
static void add_epochs(const char *name, double epochs, bool first, bool last)
{
    add(first ? ",\"epochs\":{\"" : ",\"");
    for (; *name; name++)
        if (*name == '"' || *name == '\\')
            add("\\%c", *name);
        else if ((unsigned char)*name < 32)
            add("\\u%04x", (unsigned char)*name);
        else
            add("%c", *name);
    add("\":%.6g%s", epochs, last ? "}" : "");
}

static void add_metric(const struct metric *m, const double *value)
{
    if (m->count == 1) {
        add_number(m->name, *value);
        return;
    }
    for (int64_t i = 0; i < m->count; i++)
        if (!isfinite(value[i])) return;
    add(",\"%s\":", m->name);
    for (int64_t i = 0; i < m->count; i++) add("%c%.17g", i ? ',' : '[', value[i]);
    add("]");
    tensorboard_list(m->name, value, m->count);
}

/* A disk that is full takes no more lines, and the run goes on: its weights are worth more. */
static void give_up(int64_t step, size_t written)
{
    out.lost_from = step;
    out.lost_why = errno;
    struct stat s;
    const bool shortened = fstat(out.fd, &s) == 0 && S_ISREG(s.st_mode) &&
                           ftruncate(out.fd, s.st_size - (off_t)written) == 0;
    say("warning: --metrics %s: %s; nothing is written from step %lld on%s", out.path,
        output_why(out.lost_why), (long long)step,
        written && !shortened ? ", and its last line is not whole" : "");
    close(out.fd);
    out.fd = -1;
}

/* A pipe whose reader does not read holds the run up no longer than this, and not at all long when
 * it was asked to stop. */
static bool pipe_takes(double since)
{
    enum { LOOK_MILLISECONDS = 50 };
    const double most = signals_stop()                ? 2
                        : program.timeout_seconds > 0 ? program.timeout_seconds / 4
                                                      : 60;
    struct pollfd p = {.fd = out.fd, .events = POLLOUT};
    if (clock_seconds() - since > most) return errno = ETIMEDOUT, false;
    (void)poll(&p, 1, LOOK_MILLISECONDS);
    return true;
}

static void write_line(int64_t step)
{
    const double since = clock_seconds();
    for (size_t done = 0; done < out.used;) {
        ssize_t n = write(out.fd, out.line + done, out.used - done);
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && pipe_takes(since)))) continue;
        if (n <= 0) {
            give_up(step, done);
            return;
        }
        done += (size_t)n;
    }
}

void metrics_sync(void)
{
    if (out.fd >= 0) (void)fdatasync(out.fd); /* a pipe has no disk */
}

bool metrics_whole(void)
{
    if (!tensorboard_whole()) return false;
    return !out.lost_why || fail_note("--metrics %s: %s: nothing of step %lld and later is in it",
                                      out.path, output_why(out.lost_why), (long long)out.lost_from);
}

static double mfu(double flops, double seconds) { return flops / seconds / out.machine_flops; }

static void add_validation(const struct measured *m)
{
    add_number("validation_loss", m->validation_loss);
    if (data_is_text()) add_number("validation_bits_per_byte", m->validation_loss / log(2));
    add_number("validation_seconds", m->validation_seconds);
}

/* The line of --metrics and the event of --tensorboard. */
static void tell_files(const struct measured *m)
{
    const double *value = m->value;
    const double rate = step_tokens() / m->seconds;
    out.used = 0;
    tensorboard_begin(m->step);
    add("{\"step\":%lld", (long long)m->step);
    for (int i = 0; i < program.metrics; value += program.metric[i].count, i++)
        add_metric(&program.metric[i], value);
    add_number("grad_norm", m->grad_norm);
    add_number("lr", m->lr);
    if (m->skipped) add(",\"skipped\":true");
    add(",\"tokens\":%lld,\"tokens_hash\":\"%016llx\"",
        (long long)(program.global * program.sequence), (unsigned long long)m->tokens_hash);
    add_number("step_seconds", m->seconds);
    if (predicted_step() > 0) add_number("predicted_step_seconds", predicted_step());
    add_number("tokens_per_second", rate);
    add_number("tokens_per_second_per_device", rate / (double)world.size);
    if (out.machine_flops > 0 && program.flops_per_token > 0)
        add_number("mfu", mfu(m->flops, m->seconds));
    if (m->validated) add_validation(m);
    for (int i = 0; i < data_sources(); i++)
        add_epochs(program.source[i].name, data_epochs(i, m->sample), i == 0,
                   i + 1 == data_sources());
    if (m->gap_seconds >= 0) add_number("gap_seconds", m->gap_seconds);
    if (m->data_seconds >= 0) add_number("data_wait_seconds", m->data_seconds);
    if (m->stall_seconds > 0) add_number("checkpoint_stall_seconds", m->stall_seconds);
    if (m->exposed_seconds >= 0) add_number("exposed_comm_seconds", m->exposed_seconds);
    if (m->peak_bytes > 0) add_number("memory_peak_bytes", m->peak_bytes);
    if (out.memory_limit > 0 && m->peak_bytes > 0)
        add_number("memory_fraction", m->peak_bytes / (double)out.memory_limit);
    add("}\n");
    if (out.fd >= 0) write_line(m->step);
    tensorboard_end();
}

/* What the loss is made of; of a value for each expert, who gets most and least. Empty when there
 * is nothing. */
static void add_others(char *to, size_t size, const double *value)
{
    size_t used = 0;
    to[0] = 0;
    for (int i = 0; i < program.metrics && used + 1 < size; value += program.metric[i].count, i++) {
        const struct metric *m = &program.metric[i];
        int64_t low = 0, high = 0;
        double sum = 0;
        for (int64_t k = 0; k < m->count; k++) {
            low = value[k] < value[low] ? k : low;
            high = value[k] > value[high] ? k : high;
            sum += value[k];
        }
        if (i == 0 || (program.metrics == 2 && m->count == 1)) continue;
        const double mean = sum / (double)m->count;
        int n = m->count == 1
                    ? snprintf(to + used, size - used, "  %s %.4f", m->name, *value)
                    : snprintf(to + used, size - used,
                               "  %s: most %.2f x the mean (expert %lld), least %.2f x "
                               "(expert %lld)",
                               m->name, mean > 0 ? value[high] / mean : 0, (long long)high,
                               mean > 0 ? value[low] / mean : 0, (long long)low);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* "51.2 k", in 7 columns */
static const char *rate_text(double rate, char text[16])
{
    static const char unit[] = {' ', 'k', 'M', 'G'};
    int i = 0;
    for (; rate >= 999.5 && i < 3; i++) rate /= 1000;
    snprintf(text, 16, rate < 99.95 ? "%5.1f %c" : "%5.0f %c", rate, unit[i]);
    return text;
}

/* "1:02:03" of what is left, by the last steps */
static const char *left_text(double seconds, char text[32])
{
    const long long s = seconds < 1e9 ? (long long)(seconds + 0.5) : 999999999;
    snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

/* Seconds and FLOPs of a step, of the last ones together. The first is left out when there are
 * others: it warms up. */
static double smoothed(const struct measured *m, double *flops)
{
    *flops = m->flops;
    if (out.steps <= 1) return m->seconds;
    out.recent[out.recents % SMOOTHED] = m->seconds;
    out.recent_flops[out.recents++ % SMOOTHED] = m->flops;
    const int64_t n = out.recents < SMOOTHED ? out.recents : SMOOTHED;
    double sum = 0;
    *flops = 0;
    for (int64_t i = 0; i < n; i++) sum += out.recent[i], *flops += out.recent_flops[i];
    *flops /= (double)n;
    return sum / (double)n;
}

/* On a terminal one line is drawn over and over; elsewhere every tenth step and the last one get a
 * line, or every log_every-th. Columns stay where they are. Steps are counted from 0, as
 * everywhere. */
static void people(const struct measured *m)
{
    char text[768], others[256], rate[16], left[32], mfus[32] = "", memory[32] = "";
    double flops;
    const double seconds = smoothed(m, &flops);
    const int width = snprintf(NULL, 0, "%lld", (long long)out.end);
    const int64_t every = out.log_every ? out.log_every : 10;
    add_others(others, sizeof others, m->value);
    if (out.machine_flops > 0 && program.flops_per_token > 0)
        snprintf(mfus, sizeof mfus, "  MFU %4.1f %%", 100 * mfu(flops, seconds));
    if (out.memory_limit > 0 && m->peak_bytes > 0)
        snprintf(memory, sizeof memory, "  memory %4.1f %%",
                 100 * m->peak_bytes / (double)out.memory_limit);
    snprintf(text, sizeof text,
             "step %*lld of %lld  loss %7.4f  norm %8.4f  lr %.3e  %s tokens/s%s%s  %s left%s%s",
             width, (long long)m->step, (long long)out.end, m->value[0], m->grad_norm, m->lr,
             rate_text(step_tokens() / seconds, rate), mfus, memory,
             left_text(seconds * (double)(out.end - m->step - 1), left), others,
             m->skipped ? "  (not finite: update skipped)" : "");
    const bool keep = m->step % every == 0 || m->step + 1 == out.end || m->skipped;
    if (out.terminal && out.log_every == 0 && m->step + 1 != out.end && !m->skipped) {
        say_draw(text);
        out.drawn = true;
    } else if (keep) {
        say("%s%s", out.drawn ? "\r\033[K" : "", text);
        out.drawn = false;
    }
}

double metrics_cross_entropy(const double *value)
{
    const double *at = value;
    for (int i = 0; i < program.metrics; at += program.metric[i].count, i++)
        if (!strcmp(program.metric[i].name, "ce")) return *at;
    return value[0];
}

static void people_validation(const struct measured *m)
{
    char bits[48] = "";
    if (data_is_text())
        snprintf(bits, sizeof bits, ", %.4f bits per byte", m->validation_loss / log(2));
    if (m->validation_cut)
        say("%svalidation after step %lld: no loss, the stop ended it after %lld of %lld batches",
            out.drawn ? "\r\033[K" : "", (long long)m->step, (long long)m->validation_batches,
            (long long)data_validation_batches());
    else
        say("%svalidation after step %lld: loss %.4f%s  (%lld batch%s in %.2f s)",
            out.drawn ? "\r\033[K" : "", (long long)m->step, m->validation_loss, bits,
            (long long)m->validation_batches, m->validation_batches == 1 ? "" : "es",
            m->validation_seconds);
    out.drawn = false;
}

void metrics_step(const struct measured *m)
{
    if (world.rank != 0) return;
    double ce = metrics_cross_entropy(m->value);
    if (!(m->targets > 0)) {
        out.bare++;
    } else if (!m->skipped && isfinite(ce)) {
        out.last[out.counted % WINDOW] = ce;
        if (out.counted < WINDOW) out.first_sum += ce;
        out.counted++;
    }
    if (out.steps == 0)
        out.first_seconds = m->seconds, out.first_flops = m->flops;
    else
        out.later_seconds += m->seconds, out.later_flops += m->flops;
    if (m->exposed_seconds >= 0) {
        out.exposed += m->exposed_seconds;
        out.exposed_of += m->seconds;
    }
    out.steps++;
    if (out.fd >= 0 || out.tensorboard) tell_files(m);
    people(m);
    if (m->validated || m->validation_cut) people_validation(m);
}

void metrics_validation(const struct measured *m)
{
    if (world.rank != 0) return;
    if (m->validated && (out.fd >= 0 || out.tensorboard)) {
        out.used = 0;
        tensorboard_begin(m->step);
        add_validation(m);
        add("}\n");
        if (out.fd >= 0) metrics_file_extend(out.path, m->step, out.line, out.used);
        tensorboard_end();
    }
    people_validation(m);
}

void metrics_summary(void)
{
    if (world.rank != 0 || out.steps == 0) return;
    if (out.drawn) say(" ");
    int64_t n = out.counted < WINDOW ? out.counted : WINDOW;
    double last = 0, steps = out.steps > 1 ? (double)(out.steps - 1) : 1,
           seconds = out.steps > 1 ? out.later_seconds : out.first_seconds,
           flops = out.steps > 1 ? out.later_flops : out.first_flops;
    for (int64_t i = 0; i < n; i++) last += out.last[i];
    char exposed[64] = "";
    if (out.exposed_of > 0)
        snprintf(exposed, sizeof exposed, ", exposed communication %.1f %% of the time",
                 100 * out.exposed / out.exposed_of);
    say("speed: %.0f tokens/s over %.0f steps%s%s", step_tokens() * steps / seconds, steps,
        out.steps > 1 ? " (the first one not counted)" : "", exposed);
    if (&predicted && predicted.step_seconds > 0 && predicted_step() == 0)
        say("speed: the rates of cluster %s are of %s, which this device is not: no prediction",
            predicted.cluster, predicted.device);
    if (predicted_step() > 0) {
        const double off = predicted_step() * steps / seconds;
        say("speed: a step took %.3f ms, predicted %.3f ms (%+.1f %%) by the rates of cluster %s",
            1e3 * seconds / steps, 1e3 * predicted_step(), 100 * (off - 1), predicted.cluster);
        if (out.steps > FEW_STEPS && (off > FAR_OFF || off < 1 / FAR_OFF))
            say("speed: rates that are so far off are of another machine; planc calibrate writes "
                "those of this one to a file for --cluster");
    }
    if (out.machine_flops > 0 && program.flops_per_token > 0)
        say("speed: %.1f %% of the %s of %.1f GFLOP/s (%.4g MFLOP per token)",
            100 * mfu(flops, seconds), device_peak_name(), 1e-9 * out.machine_flops,
            1e-6 * flops / steps / step_tokens());
    if (n == 0) return;
    const long long bare = out.bare, broken = out.steps - out.counted - out.bare;
    char not_finite[64] = "", without[64] = "";
    if (broken > 0)
        snprintf(not_finite, sizeof not_finite, " (%lld that were not finite do not count)",
                 broken);
    if (bare > 0) snprintf(without, sizeof without, " (%lld without targets do not count)", bare);
    say("loss: mean %.4f of the first %lld steps, %.4f of the last %lld%s%s",
        out.first_sum / (double)n, (long long)n, last / (double)n, (long long)n, not_finite,
        without);
    if (data_is_text())
        say("bits per byte: mean %.4f of the first %lld steps, %.4f of the last %lld",
            out.first_sum / (double)n / log(2), (long long)n, last / (double)n / log(2),
            (long long)n);
}
