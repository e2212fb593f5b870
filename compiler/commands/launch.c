/* If mpirun gets SIGTERM or SIGINT, it kills its ranks one second later, even while they write. It
 * passes SIGUSR1 on and continues to serve them. So this process stands between: mpirun has a
 * process group of its own, which Ctrl-C does not reach, and starts with SIGTERM and SIGINT blocked
 * (its ranks do not inherit that). A signal to either of the two becomes one SIGUSR1.
 *
 * A signal that comes while mpirun starts would end it, or meet no ranks and be lost. It waits
 * until the ranks take signals, however long they start: all are seen to, or one rank of this host
 * has met all others.
 *
 * Open MPI can be told to wait longer (odls_base_sigkill_timeout), but then it waits that long,
 * twice, whenever a rank ends with a status that is not 0. */
#define _GNU_SOURCE
#include "commands/launch.h"
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often a signal that was sent to mpirun itself is looked for. */
enum { LOOK_MILLISECONDS = 200 };
/* Where no rank is seen (all run on other hosts), nothing tells when they take signals. */
enum { UNSEEN_SECONDS = 5 };
/* runtime/shared/signals.c: the name of its thread once all ranks, also of other hosts, take them
 */
static const char ALL_TAKE[] = "signals of all\n";

static const char *name_of(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";
}

/* In the child: becomes mpirun, or tells why not through `tell`. */
static void become(char *const *argv, const sigset_t *before, pid_t parent, int tell)
{
    sigset_t mask = *before;
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    int nothing =
        open("/dev/null", O_RDONLY); /* a group in the background may not read a terminal */
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && setpgid(0, 0) == 0 &&
        prctl(PR_SET_PDEATHSIG, SIGHUP) == 0 && sigprocmask(SIG_SETMASK, &mask, NULL) == 0 &&
        getppid() == parent)
        execvp(argv[0], argv);
    int why = errno;
    if (write(tell, &why, sizeof why) != sizeof why) _exit(126);
    _exit(127);
}

/* A set of signals of a process, as /proc/PID/status has it: "ShdPnd:" wait, "SigBlk:" are blocked.
 */
static unsigned long long signal_set(pid_t process, const char *which)
{
    char path[64], line[256];
    unsigned long long set = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, which, strlen(which))) set = strtoull(line + strlen(which), NULL, 16);
    if (f) fclose(f);
    return set;
}
static bool has(unsigned long long set, int number) { return set >> (number - 1) & 1; }

/* SIGTERM or SIGINT that waits, blocked, at a process; 0: none. */
static int blocked_signal(pid_t process)
{
    const unsigned long long waiting = signal_set(process, "ShdPnd:");
    return has(waiting, SIGINT) ? SIGINT : has(waiting, SIGTERM) ? SIGTERM : 0;
}

/* Whether the name of a process or thread, "/proc/PID" or "/proc/PID/task/TID", is this line. */
static bool is_named(const char *of, const char *line)
{
    char path[600], name[32] = "";
    snprintf(path, sizeof path, "%s/comm", of);
    FILE *f = fopen(path, "re");
    const bool is = f && fgets(name, sizeof name, f) && !strcmp(name, line);
    if (f) fclose(f);
    return is;
}

/* They are blocked, for the thread that waits. */
static bool takes_signals(pid_t rank)
{
    const unsigned long long blocked = signal_set(rank, "SigBlk:");
    return has(blocked, SIGUSR1) && has(blocked, SIGUSR2);
}

static bool has_met_all(pid_t rank)
{
    char path[300];
    bool met = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)rank);
    DIR *threads = opendir(path);
    for (struct dirent *t; threads && !met && (t = readdir(threads));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s", (int)rank, t->d_name);
        met = is_named(path, ALL_TAKE);
    }
    if (threads) closedir(threads);
    return met;
}

/* The children of a process. */
struct ranks_seen {
    long long children, ranks, ready; /* ready: ranks that take signals */
    bool met;                         /* one of them knows that all do, on every host */
};

/* Each rank gets the signal `number`; 0: none does. */
static struct ranks_seen ranks_of(pid_t launcher, int number)
{
    char path[300];
    struct ranks_seen seen = {0};
    snprintf(path, sizeof path, "/proc/%d/task", (int)launcher);
    DIR *threads = opendir(path); /* each thread has its own children */
    for (struct dirent *t; threads && (t = readdir(threads));) {
        int child;
        snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)launcher, t->d_name);
        FILE *f = t->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (f && fscanf(f, "%d", &child) == 1) {
            snprintf(path, sizeof path, "/proc/%d", child);
            seen.children++;
            if (!is_named(path, "trainer\n")) continue;
            seen.ranks++;
            if (number) kill(child, number);
            seen.ready += takes_signals(child);
            seen.met = seen.met || has_met_all(child);
        }
        if (f) fclose(f);
    }
    if (threads) closedir(threads);
    return seen;
}

/* mpirun, and what is asked of it. */
struct launched {
    pid_t launcher;
    long long ranks;
    time_t unseen;         /* since when it has children, none of which is a rank; 0: it has none */
    bool started;          /* its ranks take signals */
    int asked;             /* how often to stop */
    bool stopping, saving; /* SIGUSR1 and SIGUSR2 that wait for the ranks */
};

static bool ranks_take_signals(struct launched *l)
{
    const struct ranks_seen seen = ranks_of(l->launcher, 0);
    struct timespec now;
    if (seen.met || seen.ready >= l->ranks) return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const bool elsewhere =
        seen.children && !seen.ranks && has(signal_set(l->launcher, "SigCgt:"), SIGUSR1);
    if (!elsewhere || !l->unseen) l->unseen = elsewhere ? now.tv_sec : 0;
    return elsewhere && now.tv_sec - l->unseen > UNSEEN_SECONDS;
}

static void forward(struct launched *l)
{
    if (!l->started && (l->stopping || l->saving)) l->started = ranks_take_signals(l);
    if (!l->started) return;
    if (l->saving) kill(l->launcher, SIGUSR2);
    if (l->stopping) kill(l->launcher, SIGUSR1);
    l->saving = l->stopping = false;
}

/* At once. A signal that mpirun gets while its job ends, as it does soon after the first one, makes
 * it crash in PMIx_Finalize, with status 139. So the ranks of this host are killed: mpirun ends
 * those of other hosts, tidies up and ends with 137. If no rank is left, it ends anyway. */
static void end(struct launched *l)
{
    const struct ranks_seen seen = ranks_of(l->launcher, SIGKILL);
    if (seen.ranks) return;
    if (l->asked > 2)
        kill(l->launcher, SIGKILL);
    else if (seen.children || !l->started)
        kill(l->launcher, SIGHUP); /* it ends its ranks as it would on SIGTERM */
}

static void stop(struct launched *l, int number)
{
    if (l->asked++ == 0) {
        fprintf(stderr,
                "planc: %s: the trainer is asked to stop at the end of its step; a second "
                "one ends it at once\n",
                name_of(number));
        l->stopping = true;
    } else
        end(l);
}

static int supervise(struct launched *l, const sigset_t *ours)
{
    const pid_t launcher = l->launcher;
    bool seen = false; /* what was sent to mpirun stays where it is: it counts once */
    for (;;) {
        forward(l);
        int status;
        pid_t ended = waitpid(launcher, &status, WNOHANG);
        if (ended == launcher)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ended < 0 && errno != EINTR) return -1;
        const bool soon = l->stopping || l->saving;
        const struct timespec some = {.tv_nsec = LOOK_MILLISECONDS * 1000000L / (soon ? 10 : 1)};
        int number = sigtimedwait(ours, NULL, &some);
        if (number == SIGCHLD) continue;
        if (number == SIGTSTP) {
            kill(launcher, SIGTSTP);
            raise(SIGSTOP);
            kill(launcher, SIGCONT);
        } else if (number == SIGUSR1)
            l->stopping = true;
        else if (number == SIGUSR2)
            l->saving = true;
        else if (number > 0)
            stop(l, number);
        else if (!seen && (number = blocked_signal(launcher)) > 0) {
            seen = true;
            if (l->asked == 0) stop(l, number);
        }
    }
}

int launch(char *const *argv, long long ranks)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t ours, before;
    int tell[2];
    sigemptyset(&ours);
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        struct sigaction now;
        /* nohup and the like: what is ignored stays ignored */
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&ours, signals[i]);
    }
    if (pipe2(tell, O_CLOEXEC) || sigprocmask(SIG_BLOCK, &ours, &before)) return -1;
    const pid_t parent = getpid(), launcher = fork();
    if (launcher < 0) return -1;
    if (launcher == 0) become(argv, &before, parent, tell[1]);
    close(tell[1]);
    int why = 0;
    bool started = read(tell[0], &why, sizeof why) != sizeof why;
    close(tell[0]);
    struct launched l = {.launcher = launcher, .ranks = ranks};
    int status = supervise(&l, &ours);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (started) return status;
    errno = why;
    return -1;
}

/* How Open MPI is told that ranks may outnumber cores, that they have threads of their own, and
 * that root may ask. Variables, because other launchers would refuse the options. */
bool launcher_settings(void)
{
    static const char *const setting[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
        {"PLANC_RUN", "1"}, /* the trainer is told that no signal ends its launcher */
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    };
    for (size_t i = 0; i < COUNT_OF(setting); i++) {
        if (!strncmp(setting[i][0], "OMPI_ALLOW", 10) && geteuid() != 0) continue;
        if (setenv(setting[i][0], setting[i][1], 0)) return false;
    }
    return true;
}
