/* progress.c - the line that says how far long work has come: on a terminal, from the first second
 * on, redrawn in place by a thread of its own, so that it lives while the library computes, and
 * gone before anything else is printed. Hides: when it is drawn and what it says. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { EVERY_MS = 100, COLUMNS_LEAST = 20, COLUMNS_MOST = 200 };

static struct {
    pthread_mutex_t lock; /* of everything here but the atomics, and of the terminal */
    pthread_cond_t wake;
    pthread_t thread;
    bool allowed, running, stop;
    bool open_line; /* the cursor stands behind text */
    double delay_ms, begun_ms;
    progress_unit unit;
    char what[256], detail[128];
    unsigned percent; /* the last one shown: it never falls */
    atomic_uint_fast64_t done, total;
    atomic_int drawn; /* of handlers on any thread, too */
} p = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* ---- what it says ---- */

/* 0:07, 12:30, 1:02:03 */
static void add_time(buffer *line, double seconds)
{
    unsigned long s = seconds < 360000 ? (unsigned long)(seconds + 0.5) : 360000;
    if (s >= 3600)
        text_printf(line, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        text_printf(line, "%lu:%02lu", s / 60, s % 60);
}

static void add_rate(buffer *line, double per_s)
{
    char text[32];
    if (p.unit == UNIT_TOKENS)
        text_printf(line, ", %s tok/s", rate_text(per_s, text, sizeof text));
    else if (p.unit == UNIT_BYTES && per_s >= 1e9)
        text_printf(line, ", %.1f GB/s", per_s / 1e9);
    else if (p.unit == UNIT_BYTES)
        text_printf(line, ", %.1f MB/s", per_s / 1e6);
    else if (p.unit == UNIT_SHARE && atomic_load(&p.total))
        text_printf(line, ", %.1f %% a second", 100 * per_s / (double)atomic_load(&p.total));
}

static void add_count(buffer *line, uint64_t done, uint64_t total)
{
    char a[32], b[32];
    grouped(done, a, sizeof a);
    if (total)
        text_printf(line, ", %s of %s tokens", a, grouped(total, b, sizeof b));
    else
        text_printf(line, " %s token%s", a, plural(done));
}

/* The figures behind `what`. `brief` omits what is not percent, rate and time. */
static void figures(buffer *line, bool brief)
{
    uint64_t total = atomic_load(&p.total), done = atomic_load(&p.done);
    double seconds = (now_ms() - p.begun_ms) / 1e3;
    line->n = 0;
    if (total) {
        done = done < total ? done : total;
        unsigned now = (unsigned)((double)done * 100 / (double)total);
        p.percent = now > p.percent ? now : p.percent;
        text_printf(line, " %u %%", p.percent);
    }
    if (p.unit == UNIT_TOKENS && !(brief && total))
        add_count(line, done, total);
    if (p.detail[0] && !brief)
        text_printf(line, "%s %s", total ? "," : "", p.detail);
    if (done && seconds > 0)
        add_rate(line, (double)done / seconds);
    text_puts(line, line->n ? ", " : " ");
    bool known = total && done;
    add_time(line, known ? seconds * (double)(total - done) / (double)done : seconds);
    text_puts(line, known ? " left" : "");
}

/* ---- how it is drawn ---- */

static size_t columns_of(const char *s)
{
    size_t n = 0;
    while (*s) {
        size_t k = utf8_length((const unsigned char *)s, strlen(s));
        n += k >= 3 ? 2 : 1; /* wide, or counted so: too short is better than two lines */
        s += k ? k : 1;
    }
    return n;
}

/* The name of the work, cut to so many columns, more than three. */
static void add_what(buffer *line, size_t columns)
{
    size_t used = 0, whole = columns_of(p.what);
    size_t room = whole <= columns ? columns : columns - 3;
    for (const char *s = p.what; *s;) {
        size_t k = utf8_length((const unsigned char *)s, strlen(s)), width = k >= 3 ? 2 : 1;
        bool plain = k && !is_control(s, k);
        if (used + width > room)
            break;
        text_add(line, plain ? s : "?", plain ? k : 1);
        used += width;
        s += k ? k : 1;
    }
    text_puts(line, whole <= columns ? ":" : "...:");
}

static size_t line_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < COLUMNS_MOST ? size.ws_col : COLUMNS_MOST;
}

static void draw(void)
{
    buffer line = {0}, tail = {0};
    size_t room = line_columns() - 1;
    if (room + 1 < COLUMNS_LEAST)
        return;
    figures(&tail, false);
    if (columns_of(p.what) + 1 + tail.n > room)
        figures(&tail, true);
    text_puts(&line, "\r");
    if (room > tail.n + 4)
        add_what(&line, room - tail.n - 1);
    text_add(&line, tail.data, room < tail.n ? room : tail.n);
    text_puts(&line, "\033[K");
    tell_stderr(line.data, line.n);
    atomic_store(&p.drawn, 1);
    free_buffer(&line);
    free_buffer(&tail);
}

void progress_wipe(void)
{
    static const char wipe[] = "\r\033[K";
    if (atomic_exchange(&p.drawn, 0))
        tell_stderr(wipe, sizeof wipe - 1);
}

static void sleep_until(double ms)
{
    double left = ms - now_ms();
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)((left > 0 ? left : 0) * 1e6);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    pthread_cond_timedwait(&p.wake, &p.lock, &t);
}

static void *keep_drawing(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&p.lock);
    double next = p.begun_ms + p.delay_ms;
    while (!p.stop) {
        sleep_until(next);
        if (p.stop || now_ms() < next)
            continue;
        if (!p.open_line)
            draw();
        next = now_ms() + EVERY_MS;
    }
    pthread_mutex_unlock(&p.lock);
    return NULL;
}

/* ---- what others call ---- */

void progress_allow(const args *a)
{
    const char *terminal = getenv("TERM"), *format = opt_text(a, OPT_LOG_FORMAT);
    bool capable = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    p.allowed = tty_stderr() && capable && !opt_on(a, OPT_QUIET) && !(format && format[0] == 'j');
    p.delay_ms = opt_float(a, OPT_PROGRESS_DELAY) * 1e3;
}

/* Signals are for the thread that works. */
static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&p.thread, NULL, keep_drawing, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

void progress_begin(progress_unit unit, const char *what, ...)
{
    va_list ap;
    progress_end();
    if (!p.allowed)
        return;
    va_start(ap, what);
    vsnprintf(p.what, sizeof p.what, what, ap);
    va_end(ap);
    p.unit = unit;
    p.detail[0] = '\0';
    p.percent = 0;
    atomic_store(&p.done, 0);
    atomic_store(&p.total, 0);
    p.begun_ms = now_ms();
    p.stop = false;
    if (p.delay_ms <= 0 && !p.open_line)
        draw();
    p.running = start_thread();
}

bool progress_step(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    atomic_store(&p.total, total);
    atomic_store(&p.done, done);
    return !interrupted();
}

void progress_detail(const char *fmt, ...)
{
    va_list ap;
    pthread_mutex_lock(&p.lock);
    va_start(ap, fmt);
    vsnprintf(p.detail, sizeof p.detail, fmt, ap);
    va_end(ap);
    pthread_mutex_unlock(&p.lock);
}

void progress_end(void)
{
    if (!p.running)
        return;
    pthread_mutex_lock(&p.lock);
    p.stop = true;
    progress_wipe();
    pthread_cond_signal(&p.wake);
    pthread_mutex_unlock(&p.lock);
    pthread_join(p.thread, NULL);
    p.running = false;
}

void progress_pause(void)
{
    pthread_mutex_lock(&p.lock);
    progress_wipe();
}

void progress_resume(bool open)
{
    p.open_line = open;
    pthread_mutex_unlock(&p.lock);
}
