/* Signals, without a handler. A handler runs on the stack of whatever thread the signal meets,
 * below its stack pointer, and the kernels that oneDNN generates keep data there: one stop in ten
 * ended in a corrupted heap. So the signals below are blocked before MPI or any other library
 * starts a thread, all threads inherit that, and one thread takes them by sigwaitinfo.
 *
 * What they ask for is only noted here. Ranks get a signal at different times, or only one of them
 * gets it, so the trainer agrees on it at the end of a step. */
#define _GNU_SOURCE
#include "trainer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 18 };

static const int taken[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGALRM};

static struct {
    pthread_mutex_t lock; /* held while a signal is acted upon */
    bool closed;
    sigset_t set;
    _Atomic int stop; /* struct request's */
    _Atomic int64_t saves;
    void (*alarm)(void);
} signals = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void act(const siginfo_t *info)
{
    const bool launcher = info->si_code == SI_USER && info->si_pid == getppid();
    if (info->si_signo == SIGALRM) {
        if (signals.alarm) signals.alarm();
        return;
    }
    if (signals.closed) return;
    /* a rank of this host has ended the run: the launcher ends the others */
    if (info->si_signo != SIGUSR2 && position_claimed()) _exit(STATUS_ENVIRONMENT);
    if (info->si_signo == SIGUSR2) {
        atomic_fetch_add(&signals.saves, 1);
        return;
    }
    int none = 0;
    atomic_compare_exchange_strong(&signals.stop, &none,
                                   info->si_signo + (launcher ? SIGNAL_OF_LAUNCHER : 0));
    say_hold();
}

static void *wait_for_signals(void *unused)
{
    for (;;) {
        siginfo_t info;
        if (sigwaitinfo(&signals.set, &info) < 0) continue; /* EINTR: a debugger */
        pthread_mutex_lock(&signals.lock);
        act(&info);
        pthread_mutex_unlock(&signals.lock);
    }
    return unused;
}

void signals_open(void (*on_alarm)(void))
{
    pthread_t thread;
    pthread_attr_t attributes;
    signals.alarm = on_alarm;
    sigemptyset(&signals.set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(&signals.set, taken[i]);
    /* a reader that leaves, a limit on the size of files: errors of write(), with a file's name */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (pthread_sigmask(SIG_BLOCK, &signals.set, NULL) || pthread_attr_init(&attributes) ||
        pthread_attr_setstacksize(&attributes, STACK_BYTES) ||
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) ||
        pthread_create(&thread, &attributes, wait_for_signals, NULL)) {
        fail_print("no thread to wait for signals");
        _exit(STATUS_ENVIRONMENT);
    }
    pthread_attr_destroy(&attributes);
}

void signals_close(void)
{
    pthread_mutex_lock(&signals.lock);
    signals.closed = true;
    pthread_mutex_unlock(&signals.lock);
}

int signals_stop(void) { return atomic_load(&signals.stop); }
int64_t signals_saves(void) { return atomic_load(&signals.saves); }

static const char *name_of(int number)
{
    return number == SIGINT    ? "SIGINT"
           : number == SIGUSR1 ? "SIGUSR1"
           : number == SIGTERM ? "SIGTERM"
                               : "a signal";
}

const char *signals_text(int stop, char text[64])
{
    snprintf(text, 64, "%s%s", name_of(stop % SIGNAL_OF_LAUNCHER),
             stop >= SIGNAL_OF_LAUNCHER ? " from the launcher" : "");
    return text;
}
