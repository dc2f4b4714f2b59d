/* load.c - finding the model and opening the library as the options say; and --self-test: what the
 * CPU says it can do is tried in a child process, which an illegal instruction may end without
 * harm. */
#include <errno.h>
#include <signal.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

#ifndef BITNET_DATADIR
#define BITNET_DATADIR "/usr/local/share/bitnet"
#endif

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- the model file ---- */

static const char *const beside_program[] = {
    "../../models/story.gguf",    /* build/<preset>/bitnet in the source tree */
    "../models/story.gguf",       /* build/bitnet */
    "models/story.gguf",          /* unpacked archive */
    "../share/bitnet/story.gguf", /* an install prefix that was moved */
};

static bool program_folder(char *buf, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", buf, cap - 1);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    char *slash = strrchr(buf, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static char *readable(char *path)
{
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static char *default_model(void)
{
    char folder[4096];
    char *found = NULL;
    bool known = program_folder(folder, sizeof folder);
    for (size_t i = 0; known && !found && i < sizeof beside_program / sizeof *beside_program; i++)
        found = readable(xformat("%s/%s", folder, beside_program[i]));
    if (!found)
        found = readable(xstrdup(BITNET_DATADIR "/story.gguf"));
    char *real = found ? realpath(found, NULL) : NULL;
    if (!real)
        return found;
    free(found);
    return real;
}

int model_path(const args *a, char **out)
{
    *out = opt_text(a, OPT_MODEL) ? xstrdup(opt_text(a, OPT_MODEL)) : default_model();
    if (*out)
        return check_outputs(a, *out);
    return fail(EXIT_IO,
                "no model: the story model is neither beside the program (models/story.gguf) nor "
                "at " BITNET_DATADIR "/story.gguf; name a GGUF file with --model FILE or "
                "BITNET_GGUF");
}

/* ---- --self-test ---- */

enum { AUTO, ON, OFF };                       /* as in options.inc */
enum { CHILD_OK, CHILD_WRONG, CHILD_UNABLE }; /* UNABLE: whoever opens it will say why */

static _Noreturn void child(const char *isa, int out)
{
    static const int fatal[] = {SIGILL, SIGBUS, SIGSEGV, SIGFPE};
    struct rlimit none = {0, 0};
    bitnet_error err = {0};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &none);
    bitnet_status st = bitnet_isa_self_test(isa, &err);
    if (st == BITNET_MISMATCH && write(out, err.message, strlen(err.message)) < 0)
        _exit(CHILD_WRONG);
    _exit(st == BITNET_OK ? CHILD_OK : st == BITNET_MISMATCH ? CHILD_WRONG : CHILD_UNABLE);
}

static void read_message(int in, char *buf, size_t cap)
{
    size_t n = 0;
    ssize_t k;
    while (n + 1 < cap && ((k = read(in, buf + n, cap - 1 - n)) > 0 || (k < 0 && errno == EINTR)))
        n += k > 0 ? (size_t)k : 0;
    buf[n] = '\0';
}

/* What became of a child that tried `isa`; why: in words, if it is CHILD_WRONG. Where no child can
 * be made nothing is known, and all is as without the test. */
static int try_isa(const char *isa, char *why, size_t cap)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return CHILD_OK;
    pid_t pid = fork();
    if (pid == 0)
        child(isa, ends[1]);
    close(ends[1]);
    if (pid > 0)
        read_message(ends[0], why, cap);
    close(ends[0]);
    if (pid < 0)
        return CHILD_OK;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    snprintf(why, cap, "isa '%s': the CPU says it has it, but ended the self-test with: %s",
             isa ? isa : "best", strsignal(WTERMSIG(status)));
    return CHILD_WRONG;
}

/* The highest set that works; scalar needs no test. */
static const char *highest_sound(void)
{
    char why[600];
    int n = 0;
    while (bitnet_isa_at(n))
        n++;
    while (n-- > 1)
        if (try_isa(bitnet_isa_at(n), why, sizeof why) == CHILD_OK)
            return bitnet_isa_at(n);
    return bitnet_isa_at(0);
}

/* Replaces *isa (NULL: the best) by one that passes the self-test, if --self-test wants it. */
static int tested_isa(const args *a, const char **isa)
{
    static const char *lowered; /* once is enough for a process */
    static bool best_is_sound;
    char why[600];
    long mode = opt_int(a, OPT_SELF_TEST);
    if (mode == OFF || (mode == AUTO && !bitnet_cpu_is_virtual()) || (!*isa && best_is_sound))
        return EXIT_OK;
    if (!*isa && lowered) {
        *isa = lowered;
        return EXIT_OK;
    }
    bool sound = try_isa(*isa, why, sizeof why) != CHILD_WRONG;
    if (!*isa)
        best_is_sound = sound;
    if (sound)
        return EXIT_OK;
    if (*isa)
        return fail(EXIT_NOT_AVAILABLE, "%s; choose a lower --isa, or --self-test off", why);
    *isa = lowered = highest_sound();
    warn("%s; using %s", why, lowered);
    return EXIT_OK;
}

/* ---- options into the library ---- */

/* Times are taken where they will be told. */
static bool wants_statistics(const args *a)
{
    if (a->command->key == CMD_BENCH) /* the meter costs time; --profile turns it on itself */
        return false;
    return a->command->key == CMD_CHAT || opt_report(a) || opt_given(a, OPT_RECEIPT);
}

/* A file of the environment may not be measured yet; one named on the command line is meant. */
static void warn_no_tuning(const args *a)
{
    const char *path = opt_text(a, OPT_TUNING), *origin = a->values[OPT_TUNING].origin;
    if (path && origin && strncmp(origin, "--", 2) == 0 && access(path, F_OK) != 0)
        warn("%s: %s does not exist: no tuning", origin, path);
}

const char *wanted_isa(const args *a)
{
    const char *isa = opt_text(a, OPT_ISA);
    return isa && strcmp(isa, "best") != 0 && strcmp(isa, "auto") != 0 ? isa : NULL;
}

/* What the environment says is a default, and a default refuses nothing: it divides where several
 * devices are meant and is otherwise ignored. What the command line says is taken as it is. */
static const char *wanted_split(const args *a)
{
    const char *split = opt_text(a, OPT_SPLIT), *origin = a->values[OPT_SPLIT].origin;
    const char *device = opt_text(a, OPT_DEVICE);
    if (!split || !origin || strncmp(origin, "--", 2) == 0)
        return split;
    device = device ? device : "auto";
    bool kind = !strchr(device, ':') && strcasecmp(device, "auto") != 0 &&
                strcasecmp(device, "cpu") != 0 && strcasecmp(device, "gpu") != 0;
    if (strcmp(split, "none") == 0 || !(kind || strchr(device, ',')))
        return NULL;
    return split;
}

int runtime_options(const args *a, int n_threads, bitnet_runtime_options *o)
{
    bitnet_runtime_options_init(o);
    o->n_threads = n_threads;
    o->pin = (bitnet_pin)opt_int(a, OPT_PIN); /* the words in the order of the enumeration */
    o->isa = wanted_isa(a);
    int rc = tested_isa(a, &o->isa);
    if (rc)
        return rc;
    o->log = log_sink;
    o->log_user = (void *)(uintptr_t)a;
    o->strict = opt_on(a, OPT_STRICT_RUN);
    o->tuning_path = opt_text(a, OPT_TUNING);
    warn_no_tuning(a);
    o->device = a->command->key == CMD_TOKENIZE ? "cpu" : opt_text(a, OPT_DEVICE);
    o->device_origin = a->values[OPT_DEVICE].origin;
    o->split = wanted_split(a);
    /* set and empty means no GPU, so that a variable can hide the real ones */
    o->fake_gpu = opt_text(a, OPT_GPU_FAKE) ? opt_text(a, OPT_GPU_FAKE) : getenv("BITNET_GPU_FAKE");
    o->no_fake_gpu = opt_on(a, OPT_NO_FAKE);
    o->visible_devices = getenv("CUDA_VISIBLE_DEVICES");
    o->statistics = wants_statistics(a);
    o->refine = opt_on(a, OPT_REFINE);
    return EXIT_OK;
}

int open_runtime(const args *a, int n_threads, bitnet_runtime **out)
{
    bitnet_runtime_options o;
    bitnet_error err = {0};
    int rc = runtime_options(a, n_threads, &o);
    if (rc)
        return rc;
    signals_hold(true); /* Ctrl-C must wake this thread, not a worker */
    bitnet_status st = bitnet_runtime_open(&o, out, &err);
    signals_hold(false);
    return outcome(st, &err);
}

const char *cache_folder(const char *want, char *buf, size_t cap)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (!want || strcmp(want, "off") == 0)
        return NULL;
    if (strcmp(want, "on") != 0)
        return want;
    if (base && base[0] == '/')
        n = snprintf(buf, cap, "%s/bitnet", base);
    else if (home && home[0] == '/')
        n = snprintf(buf, cap, "%s/.cache/bitnet", home);
    return n > 0 && (size_t)n < cap ? buf : NULL;
}

const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void engine_options(const args *a, bitnet_engine_options *o)
{
    bitnet_engine_options_init(o);
    o->i2s_layout = (bitnet_i2s_layout)opt_int(a, OPT_I2S_LAYOUT);
    o->no_pack = opt_on(a, OPT_NO_PACK);
    o->gpu_specialise = opt_on(a, OPT_SPECIALISE);
    o->nvrtc_path = opt_text(a, OPT_NVRTC);
    o->nvtx = opt_on(a, OPT_NVTX);
    o->batch_invariant = opt_on(a, OPT_BATCH_INVARIANT);
    o->precision = (bitnet_precision)opt_int(a, OPT_PRECISION); /* words as enumerated */
    o->on_progress = progress_step;
}

static bool is_over(void *user)
{
    loaded *m = user;
    bool late = m->deadline_ms > 0 && now_ms() >= m->deadline_ms;
    m->timed_out = m->timed_out || late;
    return late || interrupted();
}

int loaded_outcome(const loaded *m, bitnet_status status, const bitnet_error *err)
{
    if (status != BITNET_CANCELLED || !m->timed_out || interrupted())
        return outcome(status, err);
    return fail(EXIT_OTHER, "%s: --timeout %g is over before there is any text", err->message,
                opt_float(m->args, OPT_TIMEOUT));
}

int serve_bridge(const args *a, bitnet_runtime *runtime, bitnet_bridge **out)
{
    bitnet_error err = {0};
    const char *path = opt_text(a, OPT_SERVE_BRIDGE);
    if (!path)
        return EXIT_OK;
    bitnet_status st = bitnet_bridge_open(path, out, &err);
    if (st == BITNET_OK)
        st = bitnet_bridge_serve(runtime, *out, &err);
    return outcome(st, &err);
}

static int open_engine(loaded *m, bool vocab_only)
{
    bitnet_engine_options o;
    bitnet_error err = {0};
    const args *a = m->args;
    signals_name_model(m->path);
    engine_options(a, &o);
    o.vocab_only = vocab_only;
    o.policy_path = opt_text(a, OPT_POLICY);
    o.trace_dir = vocab_only ? NULL : opt_text(a, OPT_TRACE_DIR);
    o.cache_dir = cache_folder(opt_text(a, OPT_CACHE), m->cache, sizeof m->cache);
    o.cache_max_bytes = (uint64_t)opt_int(a, OPT_CACHE_SIZE) << 20;
    o.cache_min_bytes = ((uint64_t)opt_int(a, OPT_CACHE_MIN) << 20) + !opt_int(a, OPT_CACHE_MIN);
    bool first = !vocab_only && cache_is_empty(o.cache_dir);
    o.cancel = is_over;
    o.cancel_user = m;
    int rc = loaded_outcome(m, bitnet_engine_open(m->runtime, m->path, &o, &m->engine, &err), &err);
    signals_watch_engine(m->engine);
    if (!rc)
        m->info = bitnet_engine_model(m->engine);
    if (!rc && first)
        cache_tell_first(a, o.cache_dir);
    return rc ? rc : interrupted();
}

/* The time of it is part of loading, and what it counted of no answer. */
static int warm_up(loaded *m)
{
    double ms = 0;
    bitnet_error err = {0};
    if (!opt_on(m->args, OPT_WARMUP))
        return EXIT_OK;
    int rc = loaded_outcome(m, bitnet_engine_warmup(m->engine, &ms, &err), &err);
    if (!rc)
        bitnet_engine_stats_reset(m->engine);
    return rc;
}

int load_engine(loaded *m, const args *a, bool vocab_only)
{
    double start = now_ms();
    *m = (loaded){.args = a};
    if (a->command->key == CMD_RUN) /* elsewhere it is the time of a reply */
        deadline_start(m);
    int rc = model_path(a, &m->path);
    if (rc)
        return rc;
    progress_begin(UNIT_BYTES, "loading %s", file_name(m->path));
    rc = open_runtime(a, vocab_only ? 1 : (int)opt_int(a, OPT_THREADS), &m->runtime);
    rc = rc ? rc : serve_bridge(a, m->runtime, &m->bridge);
    rc = rc ? rc : open_engine(m, vocab_only);
    rc = rc || vocab_only ? rc : warm_up(m);
    progress_end();
    m->load_ms = now_ms() - start;
    return rc;
}

static bool should_stop(void *user)
{
    return is_over(user) || out_failed();
}

/* Within a prompt too, which may take long. */
static bool on_prompt(void *user, uint64_t done, uint64_t total)
{
    return progress_step(NULL, done, total) && !should_stop(user);
}

/* What --verbose tells: the model and what the session will cost. */
static void tell_loaded(const loaded *m, const bitnet_session_options *o)
{
    char line[512];
    bitnet_session_cost cost;
    const bitnet_model_info *i = m->info;
    int n_threads = bitnet_runtime_threads(m->runtime);
    if (bitnet_session_memory(m->engine, o, &cost, NULL) != BITNET_OK)
        return;
    snprintf(
        line, sizeof line,
        "%s: %s, %d layer%s, %d wide, %s weights, %.3f bits per weight, %d thread%s, session of "
        "%.1f MB, loaded in %.1f ms",
        m->path, i->architecture, i->n_layers, plural((uint64_t)i->n_layers), i->n_embd,
        i->weight_type, i->bits_per_weight, n_threads, plural((uint64_t)n_threads),
        (double)(cost.session_bytes + cost.cache_bytes + cost.workspace_bytes) / 1e6, m->load_ms);
    log_sink((void *)(uintptr_t)m->args, BITNET_LOG_INFO, "load", line);
}

bitnet_kv_type cache_type(const args *a)
{
    static const bitnet_kv_type kinds[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    return kinds[opt_int(a, OPT_KV)];
}

int load_session(loaded *m)
{
    bitnet_session_options o;
    bitnet_error err = {0};
    double start = now_ms();
    bitnet_session_options_init(&o);
    o.n_ctx = (int)opt_int(m->args, OPT_CTX);
    o.n_batch = (int)opt_int(m->args, OPT_BATCH);
    o.kv_type = cache_type(m->args);
    if (bitnet_session_open(m->engine, &o, &m->session, &err) != BITNET_OK)
        return fail_with(&err);
    tell_loaded(m, &o);
    bitnet_session_on_cancel(m->session, should_stop, m);
    bitnet_session_on_progress(m->session, on_prompt, m);
    m->load_ms += now_ms() - start;
    return EXIT_OK;
}

void deadline_start(loaded *m)
{
    double seconds = opt_float(m->args, OPT_TIMEOUT);
    m->timed_out = false;
    m->deadline_ms = seconds > 0 ? now_ms() + seconds * 1e3 : 0;
}

void load_close(loaded *m)
{
    bitnet_session_close(m->session);
    signals_forget_engine(m->engine);
    bitnet_engine_close(m->engine);
    bitnet_runtime_close(m->runtime);
    bitnet_bridge_close(m->bridge);
    free(m->path);
    *m = (loaded){0};
}
