/* signals.c - Ctrl-C asks, a vanished model file ends. Handlers use async-signal-safe calls only;
 * the strings they print are copied into fixed buffers beforehand. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "terminal.h"

/* Of any thread and of handlers: without a lock, as signal handlers may use them. */
static atomic_int asked;    /* 0, SIGINT, SIGTERM or SIGHUP */
static atomic_int n_asked;  /* how often since interrupt_clear */
static atomic_int has_temp; /* temp_name is whole */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "handlers use them");
static char model_name[1024];
static const bitnet_engine *volatile engine; /* NULL: none is open */
static char temp_name[4096];

static void remove_temp(void)
{
    if (has_temp)
        unlink(temp_name);
}

/* The first time it asks; whoever is asked again ends, wherever the program is. */
static void on_interrupt(int sig)
{
    asked = sig;
    if (atomic_fetch_add(&n_asked, 1) >= 1) {
        remove_temp();
        progress_wipe();
        terminal_restore();
        _exit(128 + sig);
    }
}

/* Ctrl-\ ends at once, as ever, but leaves the terminal in order. */
static void on_quit(int sig)
{
    remove_temp();
    progress_wipe();
    terminal_restore();
    signal(sig, SIG_DFL);
    raise(sig); /* held until this handler returns */
}

void tell_stderr(const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = write(STDERR_FILENO, bytes, n);
        if (k <= 0)
            return;
        bytes += k;
        n -= (size_t)k;
    }
}

static void say(const char *s)
{
    tell_stderr(s, strlen(s));
}

/* The kernel sends BUS_ADRERR when a page of a mapped file is no longer in the file or cannot be
 * read. Of the threads that meet it at one moment, the first one says so and ends the program. */
static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    while (atomic_flag_test_and_set(&told))
        pause();
    terminal_restore();
    remove_temp();
    progress_wipe();
    const bitnet_engine *open = engine;
    const char *path = open ? bitnet_engine_map(open, info->si_addr) : model_name;
    say("\nbitnet: ");
    say(path && *path ? path : "a mapped file");
    say(": the file was truncated or became unreadable while in use\n");
    _exit(EXIT_VANISHED);
}

void signals_handle(int sig, void (*fn)(int), int flags)
{
    struct sigaction sa = {.sa_flags = flags};
    sa.sa_handler = fn;
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
}

void signals_handle_unless_ignored(int sig, void (*fn)(int), int flags)
{
    struct sigaction now;
    if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        signals_handle(sig, fn, flags);
}

void signals_install(void)
{
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa = {0};
    /* no SA_RESTART: a blocked read returns so that the question is heard */
    signals_handle(SIGINT, on_interrupt, 0);
    signals_handle(SIGTERM, on_interrupt, 0);
    signals_handle_unless_ignored(SIGHUP, on_interrupt, 0);
    signals_handle_unless_ignored(SIGQUIT, on_quit, 0);
    signals_handle(SIGPIPE, SIG_IGN, 0); /* writes fail with EPIPE instead */
    signals_handle(SIGXFSZ, SIG_IGN, 0); /* a file size limit is a failed write, not a death */
    sigaltstack(&alternate, NULL);
    sa.sa_sigaction = on_bus_error;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGBUS, &sa, NULL);
}

void signals_name_model(const char *path)
{
    engine = NULL;
    snprintf(model_name, sizeof model_name, "%s", path);
}

void signals_watch_engine(const bitnet_engine *watched)
{
    engine = watched;
}

void signals_forget_engine(const bitnet_engine *closed)
{
    if (engine == closed)
        engine = NULL;
}

void signals_name_temp(const char *path)
{
    has_temp = 0;
    if (!path || strlen(path) >= sizeof temp_name)
        return;
    snprintf(temp_name, sizeof temp_name, "%s", path);
    has_temp = 1;
}

int interrupted(void)
{
    int sig = asked;
    return sig ? 128 + sig : 0;
}

void interrupt_clear(void)
{
    asked = 0;
    n_asked = 0;
}

void signals_hold(bool hold)
{
    /* the last three are for who draws on the terminal */
    static const int held[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t ours;
    sigemptyset(&ours);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sigaddset(&ours, held[i]);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &ours, NULL);
}

bool input_wait(void)
{
    terminal_event event;
    do
        event = terminal_wait();
    while (event != TERMINAL_INPUT && event != TERMINAL_INTERRUPTED);
    return !interrupted(); /* by a signal that came with the input, too */
}
