/* The ranks: how they start, agree, exchange small numbers on the main thread, and end. There are
 * two ways to end: all ranks call world_leave, which is orderly; one rank calls fail_now or
 * fail_end, from any thread, and MPI_Abort ends the others. */
#define _GNU_SOURCE
#include "world_mpi.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct world world = {.rank = 0, .size = 1, .host_size = 1, .one_host = true};

static MPI_Comm main_comm = MPI_COMM_NULL, host_comm = MPI_COMM_NULL;
static MPI_Win host_window = MPI_WIN_NULL;
static void (*before_leaving)(void);

void mpi_check(int rc, const char *what)
{
    if (rc == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    fail_now("rank %d: %s: %s", world.rank, what, text);
}

/* MPI moves data only inside its calls, so frequent polling is fast, but each poll takes time from
 * the core that another rank computes on. This waits for one piece of a transfer: at first it polls
 * and yields the core in between, then it sleeps for increasing times. */
void mpi_nap(double from)
{
    const double waited = clock_seconds() - from;
    struct timespec nap = {.tv_nsec = waited < 1e-3 ? 20000 : waited < 1e-2 ? 100000 : 250000};
    if (waited < 50e-6)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

void mpi_finish(MPI_Request *request, int n, const char *what)
{
    const double from = clock_seconds();
    for (;;) {
        int done = 0;
        mpi_check(MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE), what);
        if (done) return;
        mpi_nap(from);
    }
}

void mpi_split(int color, int key, const char *what, MPI_Comm *to)
{
    mpi_check(MPI_Comm_split(MPI_COMM_WORLD, color, key, to), what);
    mpi_check(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN), what);
}

/* Of the world. */
static void mpi_duplicate(MPI_Comm *to)
{
    mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, to), "duplicate the world");
    mpi_check(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN), "duplicate the world");
}

/* Takes every rank down, from any thread. */
static void end_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

/* ── coming up ───────────────────────────────────────────────────────────────── */

/* Until the ranks have met there is no page on which a rank's silence could be seen, and MPI waits
 * for a stopped one forever. So each sets itself a timer: the run's timeout, and no less than a
 * busy machine may take to start. Rank 0 speaks first and its end takes the others along; one that
 * is late was itself stopped, and has nothing to say. */
enum { MEET_SECONDS = 30, MEET_TURN = 5 };
static double meet_until;
static enum { MEETING, LEAVING, LEAVING_STOPPED } meeting;

/* In the thread that waits for signals. After a stop, everything is saved and only MPI does not
 * end: a launcher that was told to end itself serves it no more. */
static void not_met(void)
{
    if (meeting == LEAVING_STOPPED) _exit(STATUS_STOPPED);
    if (clock_seconds() < meet_until + 0.5)
        fail_print(meeting == LEAVING
                       ? "the run is over, and MPI does not end: a rank is stopped or cannot be "
                         "reached"
                       : "the ranks have not found each other: one of them is stopped or cannot be "
                         "reached");
    _exit(STATUS_ENVIRONMENT);
}

void world_meet(double seconds)
{
    struct itimerval timer = {.it_value = {.tv_sec = (time_t)seconds}};
    meet_until = clock_seconds() + (double)timer.it_value.tv_sec;
    if (setitimer(ITIMER_REAL, &timer, NULL) != 0)
        fail_print("no timer, waiting for the other ranks has no end");
}

static int variable(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

/* mpirun of another MPI starts N processes that each believe to be alone. The launcher's own
 * variables know better; only the process that it calls 0 speaks. */
static void refuse_foreign_launcher(void)
{
    static const struct {
        const char *size, *rank;
    } launcher[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                    {"PMI_SIZE", "PMI_RANK"},
                    {"PMIX_SIZE", "PMIX_RANK"},
                    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
    for (size_t i = 0; world.size == 1 && i < sizeof launcher / sizeof *launcher; i++) {
        int size = variable(launcher[i].size), rank = variable(launcher[i].rank);
        if (size <= 1 && !(size < 0 && rank > 0)) continue;
        char version[MPI_MAX_LIBRARY_VERSION_STRING], text[256];
        int n = 0;
        MPI_Get_library_version(version, &n);
        version[strcspn(version, ",\n")] = 0;
        if (size > 1)
            snprintf(text, sizeof text,
                     "%s says %d ranks, but this one is alone: it was started by another MPI's "
                     "launcher; this trainer needs mpirun of %.60s",
                     launcher[i].size, size, version);
        else
            snprintf(text, sizeof text,
                     "%s is %d, but this rank is alone: it was started by another MPI's launcher; "
                     "this trainer needs mpirun of %.60s",
                     launcher[i].rank, rank, version);
        if (rank <= 0 || size < 0) fail_print(text);
        world_leave(STATUS_ENVIRONMENT);
    }
}

/* This host's name; PLANC_HOST stands in its place, so that one machine can be several. */
const char *world_host(void)
{
    static char host[65];
    const char *other = getenv("PLANC_HOST");
    if (host[0]) return host;
    if (other && *other)
        snprintf(host, sizeof host, "%s", other);
    else if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "this host");
    return host;
}

void world_mpi_text(char *to, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = 0;
    snprintf(to, bytes, "%s", version);
}

/* The ranks that share this host's memory, and its name. */
static void open_host(void)
{
    static const char *const what = "ranks of this host";
    MPI_Comm machine;
    unsigned color = 0;
    for (const char *c = getenv("PLANC_HOST") ? world_host() : ""; *c; c++)
        color = color * 31 + (unsigned char)*c;
    mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world.rank, MPI_INFO_NULL,
                                  &machine),
              what);
    mpi_check(MPI_Comm_split(machine, (int)(color & INT_MAX), world.rank, &host_comm), what);
    mpi_check(MPI_Comm_free(&machine), what);
    mpi_check(MPI_Comm_set_errhandler(host_comm, MPI_ERRORS_RETURN), what);
    mpi_check(MPI_Comm_rank(host_comm, &world.host_rank), what);
    mpi_check(MPI_Comm_size(host_comm, &world.host_size), what);
    mpi_check(MPI_Allreduce(&world.rank, &world.host_first, 1, MPI_INT, MPI_MIN, host_comm), what);
}

void world_open(int *argc, char ***argv)
{
    int provided = MPI_THREAD_SINGLE, rank = variable("OMPI_COMM_WORLD_RANK");
    signals_open(not_met);
    if (program.timeout_seconds > 0)
        world_meet(ceil(fmax(program.timeout_seconds, MEET_SECONDS)) +
                   (rank > 0 ? MEET_TURN * rank : 0));
    if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
        fail_print("MPI does not start");
        _exit(STATUS_ENVIRONMENT);
    }
    fail_as(0, end_all);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* naps as short as asked for, in the threads to come too */
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &world.rank), "rank");
    fail_as(world.rank, end_all);
    mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &world.size), "size");
    if (provided < MPI_THREAD_MULTIPLE) {
        if (world.rank == 0)
            fail_print("this MPI was built without MPI_THREAD_MULTIPLE, which moving data beside "
                       "the computation needs");
        world_leave(STATUS_ENVIRONMENT);
    }
    refuse_foreign_launcher();
    mpi_duplicate(&main_comm);
    signals_of_all(); /* the duplicate needed every rank */
    open_host();
    world.one_host = world.host_size == world.size;
}

void world_met(void)
{
    if (setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0}}, NULL) != 0)
        fail_now("rank %d: the timer of the start does not end", world.rank);
}

void world_split(void)
{
    if (world.size != program.fsdp * program.dp) {
        char text[256];
        snprintf(text, sizeof text, "built for %lld ranks (fsdp %lld x dp %lld), started with %d",
                 (long long)(program.fsdp * program.dp), (long long)program.fsdp,
                 (long long)program.dp, world.size);
        if (world.rank == 0) fail_print(text);
        world_leave(STATUS_ENVIRONMENT);
    }
    world.replica = world.rank / (int)program.fsdp;
    world.shard = world.rank % (int)program.fsdp;
    world.part = program.parts ? world.shard * (int)program.parts + world.replica : world.shard;
    collectives_open();
}

const char *world_rank_text(char text[128])
{
    *text = 0;
    if (world.size > 1) snprintf(text, 128, "rank %d on %s: ", world.rank, world_host());
    return text;
}

void world_host_barrier(void)
{
    MPI_Request request;
    mpi_check(MPI_Ibarrier(host_comm, &request), "ranks of this host");
    position_wait(true);
    mpi_finish(&request, 1, "ranks of this host");
    position_wait(false);
}

void *world_host_page(int64_t bytes)
{
    void *page = NULL;
    MPI_Aint size;
    int unit;
    bool first = world.host_rank == 0;
    mpi_check(MPI_Win_allocate_shared(first ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, host_comm,
                                      &page, &host_window),
              "a page shared by the ranks of a host");
    mpi_check(MPI_Win_shared_query(host_window, 0, &size, &unit, &page),
              "a page shared by the ranks of a host");
    if (first) memset(page, 0, (size_t)bytes);
    mpi_check(MPI_Barrier(host_comm), "a page shared by the ranks of a host");
    return page;
}

/* ── what the main thread says ───────────────────────────────────────────────── */

static void finish(MPI_Request *request, const char *what)
{
    position_wait(true);
    mpi_finish(request, 1, what);
    position_wait(false);
}

void world_agree_or(int status)
{
    /* the lowest rank that failed, and the lowest that did not */
    int mine[2] = {fail_noted() ? world.rank : INT_MAX, fail_noted() ? INT_MAX : world.rank};
    int lowest[2] = {INT_MAX, INT_MAX};
    MPI_Request request;
    mpi_check(MPI_Iallreduce(mine, lowest, 2, MPI_INT, MPI_MIN, main_comm, &request), "agree");
    finish(&request, "agree");
    if (lowest[0] == INT_MAX) return;
    if (lowest[0] == world.rank) {
        char line[4096], rank[128];
        const char *noted = fail_noted();
        const bool own = lowest[1] != INT_MAX && strncmp(noted, "rank ", 5);
        snprintf(line, sizeof line, "%s%s", own ? world_rank_text(rank) : "", noted);
        fail_print(line);
    }
    world_leave(status);
}

void world_agree(void) { world_agree_or(STATUS_ENVIRONMENT); }

void world_exchange(const double *mine, int64_t n, double *all)
{
    MPI_Request request;
    mpi_check(
        MPI_Iallgather(mine, (int)n, MPI_DOUBLE, all, (int)n, MPI_DOUBLE, main_comm, &request),
        "exchange");
    finish(&request, "exchange");
}

void world_sum(double *value, int64_t n)
{
    MPI_Request request;
    for (int64_t done = 0; done < n; done += 1 << 20) {
        int some = n - done < 1 << 20 ? (int)(n - done) : 1 << 20;
        mpi_check(MPI_Iallreduce(MPI_IN_PLACE, value + done, some, MPI_DOUBLE, MPI_SUM, main_comm,
                                 &request),
                  "sum");
        finish(&request, "sum");
    }
}

void world_send(const void *from, int64_t bytes, int to)
{
    MPI_Request request;
    for (int64_t done = 0; done < bytes; done += 1 << 30) {
        int some = bytes - done < 1 << 30 ? (int)(bytes - done) : 1 << 30;
        mpi_check(MPI_Isend((const char *)from + done, some, MPI_BYTE, to, 1, main_comm, &request),
                  "send");
        finish(&request, "send");
    }
}

void world_receive(void *to, int64_t bytes, int from)
{
    MPI_Request request;
    for (int64_t done = 0; done < bytes; done += 1 << 30) {
        int some = bytes - done < 1 << 30 ? (int)(bytes - done) : 1 << 30;
        mpi_check(MPI_Irecv((char *)to + done, some, MPI_BYTE, from, 1, main_comm, &request),
                  "receive");
        finish(&request, "receive");
    }
}

/* ── ending ──────────────────────────────────────────────────────────────────── */

/* Built with a leak checker, a trainer is checked while MPI's modules are still loaded: what they
 * keep can be told from what is ours only as long as its callers have names. */
void __lsan_do_leak_check(void) __attribute__((weak));

void world_before_leaving(void (*call)(void)) { before_leaving = call; }

/* Nobody passes the barrier before all have written what they had to say: mpirun ends the others as
 * soon as one rank returns a status that is not 0. */
void world_leave(int status)
{
    MPI_Request request;
    say_release();
    if (main_comm != MPI_COMM_NULL && MPI_Ibarrier(main_comm, &request) == MPI_SUCCESS)
        finish(&request, "leave");
    signals_close();
    if (before_leaving) before_leaving();
    /* nobody watches any more; a leak checker takes its time */
    if (program.timeout_seconds > 0 && main_comm != MPI_COMM_NULL && !__lsan_do_leak_check)
        meeting = status == STATUS_STOPPED ? LEAVING_STOPPED : LEAVING,
        world_meet(ceil(fmax(program.timeout_seconds, MEET_SECONDS)) + MEET_TURN * world.rank);
    if (host_window != MPI_WIN_NULL) MPI_Win_free(&host_window);
    fflush(NULL);
    if (__lsan_do_leak_check) __lsan_do_leak_check();
    MPI_Finalize(); /* whatever it says: there is nothing left to lose */
    exit(status);
}
