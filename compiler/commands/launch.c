/* If mpirun gets SIGTERM or SIGINT, it kills its ranks one second later, even while they write. It
 * passes SIGUSR1 on and continues to serve them. So this process stands between: mpirun has a
 * process group of its own, which Ctrl-C does not reach, and starts with SIGTERM and SIGINT blocked
 * (its ranks do not inherit that). A signal to either of the two becomes one SIGUSR1.
 *
 * Open MPI can be told to wait longer (odls_base_sigkill_timeout), but then it waits that long,
 * twice, whenever a rank ends with a status that is not 0. */
#define _GNU_SOURCE
#include "commands/launch.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often a signal that was sent to mpirun itself is looked for. */
enum { LOOK_MILLISECONDS = 200 };

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

/* SIGTERM or SIGINT that waits, blocked, at a process; 0: none. */
static int blocked_signal(pid_t process)
{
    char path[64], line[256];
    unsigned long long waiting = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "ShdPnd:", 7)) waiting = strtoull(line + 7, NULL, 16);
    if (f) fclose(f);
    return waiting >> (SIGINT - 1) & 1 ? SIGINT : waiting >> (SIGTERM - 1) & 1 ? SIGTERM : 0;
}

static void stop(pid_t launcher, int number, int *asked)
{
    if (*asked == 0)
        fprintf(stderr,
                "planc: %s: the trainer is asked to stop at the end of its step; a second "
                "one ends it at once\n",
                name_of(number));
    /* mpirun ends its ranks on SIGHUP as it would on SIGTERM */
    kill(launcher, *asked == 0 ? SIGUSR1 : SIGHUP);
    ++*asked;
}

static int supervise(pid_t launcher, const sigset_t *ours)
{
    int asked = 0;
    bool seen = false; /* what was sent to mpirun stays where it is: it counts once */
    for (;;) {
        int status;
        pid_t ended = waitpid(launcher, &status, WNOHANG);
        if (ended == launcher)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (ended < 0 && errno != EINTR) return -1;
        const struct timespec some = {.tv_nsec = LOOK_MILLISECONDS * 1000000L};
        int number = sigtimedwait(ours, NULL, &some);
        if (number == SIGCHLD) continue;
        if (number == SIGTSTP) {
            kill(launcher, SIGTSTP);
            raise(SIGSTOP);
            kill(launcher, SIGCONT);
        } else if (number == SIGUSR1 || number == SIGUSR2)
            kill(launcher, number);
        else if (number > 0)
            stop(launcher, number, &asked);
        else if (!seen && (number = blocked_signal(launcher)) > 0) {
            seen = true;
            if (asked == 0) stop(launcher, number, &asked);
        }
    }
}

int launch(char *const *argv)
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
    int status = supervise(launcher, &ours);
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
