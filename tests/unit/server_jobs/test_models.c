/* The models of a server: found in files and folders, loaded when they are wanted, within a budget,
 * and only from where they may be loaded. */
#include "answers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "jobs/models.h"

static const char *const names[] = {"a", "b", "c"};

typedef struct place {
    char dir[64], other[64]; /* a folder of models, and one that is not allowed */
} place;

static void path_of(char out[512], const char *dir, const char *name)
{
    snprintf(out, 512, "%s/%s", dir, name);
}

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        assert_int_equal(fwrite(buf, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void put_model(const char *dir, const char *name)
{
    char path[512];
    path_of(path, dir, name);
    copy_file(NANO_PATH, path);
}

/* A folder with a.gguf, b.gguf, c.gguf and what is no model. */
static place place_make(void)
{
    place p;
    char path[512];
    snprintf(p.dir, sizeof p.dir, "/tmp/bitnet-models-XXXXXX");
    snprintf(p.other, sizeof p.other, "/tmp/bitnet-other-XXXXXX");
    assert_true(mkdtemp(p.dir) && mkdtemp(p.other));
    put_model(p.dir, "c.gguf");
    put_model(p.dir, "a.gguf");
    put_model(p.dir, "b.gguf");
    put_model(p.other, "secret.gguf");
    put_model(p.dir, ".hidden.gguf");
    put_model(p.dir, "notes.txt");
    path_of(path, p.dir, "folder.gguf");
    assert_int_equal(mkdir(path, 0700), 0);
    return p;
}

static void place_remove(const place *p)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", p->dir, p->other);
    assert_int_equal(system(command), 0);
}

static srv_models_options options(const char *const *paths, size_t n)
{
    srv_models_options o = {.paths = paths, .n_paths = n};
    bitnet_runtime_options_init(&o.runtime);
    bitnet_engine_options_init(&o.engine);
    o.runtime.n_threads = 1;
    o.scheduler.kv_bytes = (uint64_t)4 << 20;
    o.scheduler.n_tokens = 128;
    return o;
}

static srv_model_state state_of(srv_models *m, const char *name)
{
    srv_model_row row;
    for (size_t i = 0; srv_models_at(m, i, &row); i++)
        if (strcmp(row.name, name) == 0)
            return row.state;
    fail_msg("no row for %s", name);
    return SRV_BROKEN;
}

static srv_model *use(srv_models *m, const char *name)
{
    srv_model *model = NULL;
    OK(srv_model_use(m, name, NULL, NULL, &model, &err));
    return model;
}

static void use_once(srv_models *m, const char *name)
{
    srv_model_release(m, use(m, name));
}

/* ---- finding them ---- */

static void folders_are_offered(void **state)
{
    (void)state;
    place p = place_make();
    char file[512];
    path_of(file, p.other, "a.gguf"); /* the same name, another file */
    copy_file(NANO_PATH, file);
    char link[512];
    path_of(link, p.other, "again.gguf"); /* the same file, another name */
    char target[512];
    path_of(target, p.dir, "b.gguf");
    assert_int_equal(symlink(target, link), 0);
    const char *paths[] = {p.dir, file, link};
    srv_models_options o = options(paths, 3);
    srv_models *m = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    srv_model_row row;
    for (size_t i = 0; i < 3; i++) {
        assert_true(srv_models_at(m, i, &row));
        assert_string_equal(row.name, names[i]);
        assert_int_equal(row.state, SRV_UNLOADED);
        assert_true(row.n_bytes > 1000 && row.created > 0);
    }
    assert_true(srv_models_at(m, 3, &row));
    assert_string_equal(row.name, "a-2");
    assert_false(srv_models_at(m, 4, &row));
    srv_models_close(m);
    place_remove(&p);
}

static void paths_are_refused(void **state)
{
    (void)state;
    place p = place_make();
    char empty[512];
    path_of(empty, p.dir, "folder.gguf");
    srv_models *m = NULL;
    const char *missing[] = {"/nonexistent/x.gguf"}, *none[] = {empty}, *bad[] = {NANO_PATH ".c"};
    srv_models_options o = options(missing, 1);
    FAILS(srv_models_open(&o, true, &m, &err), BITNET_IO, "x.gguf");
    o = options(none, 1);
    FAILS(srv_models_open(&o, true, &m, &err), BITNET_IO, "no files");
    o = options(bad, 1);
    FAILS(srv_models_open(&o, true, &m, &err), BITNET_IO, "nano");
    o = options(NULL, 0);
    FAILS(srv_models_open(&o, true, &m, &err), BITNET_ARGUMENT, "no file");
    const char *text[] = {TEST_SOURCE_DIR "/LICENSE"};
    o = options(text, 1);
    FAILS(srv_models_open(&o, false, &m, &err), BITNET_MODEL, "LICENSE");
    place_remove(&p);
}

static void names_choose(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir}, *one[] = {NANO_PATH};
    srv_models_options o = options(paths, 1);
    srv_models *m = NULL;
    srv_model *model = NULL;
    OK(srv_models_open(&o, false, &m, &err));
    assert_int_equal(state_of(m, "a"), SRV_LOADED);
    assert_int_equal(state_of(m, "b"), SRV_UNLOADED);
    model = use(m, "b");
    assert_string_equal(model->name, "b");
    assert_true(model->engine && model->scheduler && model->info && model->n_ctx > 0);
    assert_string_equal(model->device, "cpu");
    assert_non_null(strstr(model->summary, "selected="));
    srv_model_release(m, model);
    model = use(m, NULL);
    assert_string_equal(model->name, "a");
    srv_model_release(m, model);
    o.any_name = true;
    FAILS(srv_model_use(m, "gpt-4", NULL, NULL, &model, &err), BITNET_NOT_AVAILABLE, "gpt-4");
    assert_null(srv_model_peek(m, "c"));
    assert_null(srv_model_peek(m, "d"));
    model = srv_model_peek(m, "b");
    assert_string_equal(model->name, "b");
    srv_model_looked(m, model);
    srv_models_close(m);
    o = options(one, 1);
    o.any_name = true;
    OK(srv_models_open(&o, true, &m, &err));
    model = use(m, "gpt-4");
    assert_string_equal(model->name, "nano");
    srv_model_release(m, model);
    srv_models_close(m);
    place_remove(&p);
}

/* ---- memory ---- */

static void least_used_goes(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.max_loaded = 2;
    srv_models *m = NULL;
    srv_model *none = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    use_once(m, "a");
    use_once(m, "b");
    use_once(m, "a");
    use_once(m, "c"); /* b was used least recently */
    assert_int_equal(state_of(m, "a"), SRV_LOADED);
    assert_int_equal(state_of(m, "b"), SRV_UNLOADED);
    assert_int_equal(state_of(m, "c"), SRV_LOADED);
    srv_model *a = use(m, "a");
    use_once(m, "b"); /* a is older than c, but in use */
    assert_int_equal(state_of(m, "a"), SRV_LOADED);
    assert_int_equal(state_of(m, "c"), SRV_UNLOADED);
    srv_model *b = use(m, "b");
    FAILS(srv_model_use(m, "c", NULL, NULL, &none, &err), BITNET_AGAIN, "in use");
    assert_int_equal(state_of(m, "c"), SRV_UNLOADED); /* not broken */
    srv_model_release(m, a);
    use_once(m, "c");
    srv_model_release(m, b);
    srv_models_close(m);
    place_remove(&p);
}

static void budget_is_kept(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    struct stat st;
    assert_int_equal(stat(NANO_PATH, &st), 0);
    o.budget_bytes = 2 * ((uint64_t)st.st_size + o.scheduler.kv_bytes); /* for two of them */
    srv_models *m = NULL;
    srv_model *model = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    for (int i = 0; i < 3; i++)
        use_once(m, names[i]);
    assert_int_equal(state_of(m, "a"), SRV_UNLOADED);
    assert_int_equal(state_of(m, "b"), SRV_LOADED);
    srv_models_close(m);
    o.budget_bytes = 1000;
    OK(srv_models_open(&o, true, &m, &err));
    FAILS(srv_model_use(m, "a", NULL, NULL, &model, &err), BITNET_NOT_AVAILABLE, "--model-memory");
    srv_models_close(m);
    place_remove(&p);
}

typedef struct looking {
    srv_models *m;
    srv_model *model;
    int n_ctx;
} looking;

static void *stop_looking(void *user)
{
    looking *l = user;
    srv_load figures;
    usleep(100000);
    srv_scheduler_load(l->model->scheduler, &figures); /* it is still there */
    l->n_ctx = figures.n_ctx;
    srv_model_looked(l->m, l->model);
    return NULL;
}

/* Whoever reads figures is waited for, and keeps nobody from being unloaded; a file that is no
 * model unloads nobody. */
static void a_look_is_no_use(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    char bad[512];
    path_of(bad, p.dir, "bad.gguf");
    copy_file(TEST_SOURCE_DIR "/LICENSE", bad);
    o.max_loaded = 1;
    looking l = {NULL, NULL, 0};
    srv_model *none = NULL;
    pthread_t thread;
    OK(srv_models_open(&o, true, &l.m, &err));
    use_once(l.m, "a");
    l.model = srv_model_peek(l.m, "a");
    assert_non_null(l.model);
    assert_int_equal(pthread_create(&thread, NULL, stop_looking, &l), 0);
    use_once(l.m, "b");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(l.n_ctx > 0);
    assert_int_equal(state_of(l.m, "a"), SRV_UNLOADED);
    FAILS(srv_model_use(l.m, "bad", NULL, NULL, &none, &err), BITNET_MODEL, "bad.gguf");
    assert_int_equal(state_of(l.m, "b"), SRV_LOADED);
    srv_models_close(l.m);
    place_remove(&p);
}

/* Nobody is unloaded for a model that does not fit even then. */
static void none_goes_in_vain(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    struct stat st;
    assert_int_equal(stat(NANO_PATH, &st), 0);
    o.budget_bytes = 2 * ((uint64_t)st.st_size + o.scheduler.kv_bytes);
    char large[512];
    path_of(large, p.dir, "c.gguf"); /* it need not be read for this */
    assert_int_equal(truncate(large, (off_t)o.budget_bytes), 0);
    srv_models *m = NULL;
    srv_model *a = NULL, *b = NULL, *none = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    use_once(m, "a");
    FAILS(srv_model_use(m, "c", NULL, NULL, &none, &err), BITNET_NOT_AVAILABLE,
          "the model c needs");
    assert_int_equal(state_of(m, "a"), SRV_LOADED);
    srv_models_close(m);
    assert_int_equal(truncate(large, st.st_size + 100), 0); /* two, but not beside one */
    OK(srv_models_open(&o, true, &m, &err));
    OK(srv_model_use(m, "a", NULL, NULL, &a, &err));
    use_once(m, "b");
    FAILS(srv_model_use(m, "c", NULL, NULL, &none, &err), BITNET_AGAIN, "models in use (1)");
    assert_int_equal(state_of(m, "b"), SRV_LOADED);
    OK(srv_model_use(m, "b", NULL, NULL, &b, &err));
    srv_model_release(m, a);
    srv_model_release(m, b);
    srv_models_close(m);
    place_remove(&p);
}

static uint64_t cache_bytes(const srv_model *model)
{
    srv_load figures;
    srv_scheduler_load(model->scheduler, &figures);
    return figures.kv.n_blocks * figures.kv.block_bytes;
}

/* A cache whose size nobody chose has its share of what the budget leaves. */
static void caches_keep_the_budget(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    struct stat st;
    assert_int_equal(stat(NANO_PATH, &st), 0);
    o.scheduler.kv_bytes = 0;
    for (uint64_t mb = 1; mb <= 64; mb *= 8) {
        srv_models *m = NULL;
        srv_model *a = NULL, *b = NULL;
        o.budget_bytes = 2 * (uint64_t)st.st_size + (mb << 20);
        o.max_loaded = 2;
        OK(srv_models_open(&o, true, &m, &err));
        OK(srv_model_use(m, "a", NULL, NULL, &a, &err));
        OK(srv_model_use(m, "b", NULL, NULL, &b, &err));
        assert_true(a->n_ctx >= 64 && b->n_ctx >= 64);
        assert_true(cache_bytes(a) + cache_bytes(b) <= mb << 20);
        assert_true(cache_bytes(a) < cache_bytes(b) * 2 && cache_bytes(b) < cache_bytes(a) * 2);
        srv_model_release(m, a);
        srv_model_release(m, b);
        srv_models_close(m);
    }
    place_remove(&p);
}

static int context_of(const srv_models_options *o, uint64_t budget)
{
    srv_models_options with = *o;
    srv_models *m = NULL;
    srv_model *a = NULL;
    with.budget_bytes = budget;
    OK(srv_models_open(&with, true, &m, &err));
    OK(srv_model_use(m, "a", NULL, NULL, &a, &err));
    int n_ctx = a->n_ctx;
    srv_model_release(m, a);
    srv_models_close(m);
    return n_ctx;
}

/* Models that do not fit together do not share; a budget without room for a cache is refused. */
static void one_at_a_time(void **state)
{
    (void)state;
    place p = place_make();
    char a[512];
    path_of(a, p.dir, "a.gguf");
    const char *one[] = {a}, *all[] = {p.dir};
    srv_models_options alone = options(one, 1), o = options(all, 1);
    struct stat st;
    assert_int_equal(stat(NANO_PATH, &st), 0);
    alone.scheduler.kv_bytes = o.scheduler.kv_bytes = 0;
    uint64_t budget = (uint64_t)st.st_size * 9 / 5;
    assert_int_equal(context_of(&o, budget), context_of(&alone, budget));
    srv_models *m = NULL;
    srv_model *none = NULL;
    o.budget_bytes = (uint64_t)st.st_size + 100;
    OK(srv_models_open(&o, true, &m, &err));
    for (int i = 0; i < 2; i++)
        FAILS(srv_model_use(m, "a", NULL, NULL, &none, &err), BITNET_NOT_AVAILABLE,
              "--model-memory");
    srv_models_close(m);
    place_remove(&p);
}

/* ---- files that are wrong ---- */

static void broken_ones_are_remembered(void **state)
{
    (void)state;
    place p = place_make();
    char bad[512];
    path_of(bad, p.dir, "bad.gguf");
    copy_file(TEST_SOURCE_DIR "/LICENSE", bad);
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    srv_models *m = NULL;
    srv_model *model = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    FAILS(srv_model_use(m, "bad", NULL, NULL, &model, &err), BITNET_MODEL, "bad.gguf");
    assert_int_equal(state_of(m, "bad"), SRV_BROKEN);
    srv_model_row row;
    assert_true(srv_models_at(m, 2, &row));
    assert_non_null(strstr(row.why, "bad.gguf"));
    copy_file(NANO_PATH, bad); /* mended, which is not looked at for a while */
    FAILS(srv_model_use(m, "bad", NULL, NULL, &model, &err), BITNET_MODEL, "bad.gguf");
    OK(srv_models_remove(m, "bad", &err)); /* unless somebody says so */
    use_once(m, "bad");
    use_once(m, "a");
    srv_models_close(m);
    place_remove(&p);
}

/* ---- adding and removing ---- */

static void only_from_allowed_folders(void **state)
{
    (void)state;
    place p = place_make();
    char secret[512], link[512], dots[1024], inside[512];
    path_of(secret, p.other, "secret.gguf");
    path_of(link, p.dir, "link.gguf");
    path_of(inside, p.dir, "a.gguf");
    assert_int_equal(symlink(secret, link), 0);
    snprintf(dots, sizeof dots, "%s/../%s", p.dir, secret + strlen("/tmp/"));
    const char *paths[] = {NANO_PATH}, *dirs[] = {p.dir};
    srv_models_options o = options(paths, 1);
    srv_models *m = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    FAILS(srv_models_add(m, inside, NULL, NULL, NULL, &err), BITNET_ARGUMENT, "no folder");
    srv_models_close(m);
    o.load_dirs = dirs;
    o.n_load_dirs = 1;
    OK(srv_models_open(&o, true, &m, &err));
    const char *bad[] = {secret, link,  dots, "link.gguf", "missing.gguf", "../etc/passwd",
                         "",     p.dir, ".",  "/",         "folder.gguf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(srv_models_add(m, bad[i], NULL, NULL, NULL, &err), BITNET_ARGUMENT, "is no file");
    char beside[300]; /* a folder whose name begins like the allowed one */
    snprintf(beside, sizeof beside, "%s-more", p.dir);
    assert_int_equal(mkdir(beside, 0700), 0);
    put_model(beside, "x.gguf");
    snprintf(beside, sizeof beside, "%s-more/x.gguf", p.dir);
    FAILS(srv_models_add(m, beside, NULL, NULL, NULL, &err), BITNET_ARGUMENT, "is no file");
    assert_int_equal(unlink(beside), 0);
    snprintf(beside, sizeof beside, "%s-more", p.dir);
    assert_int_equal(rmdir(beside), 0);
    srv_model_row row;
    assert_true(srv_models_at(m, 0, &row));
    assert_false(srv_models_at(m, 1, &row));
    srv_models_close(m);
    place_remove(&p);
}

static void added_and_removed(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {NANO_PATH}, *dirs[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.load_dirs = dirs;
    o.n_load_dirs = 1;
    srv_models *m = NULL;
    srv_model_row row;
    OK(srv_models_open(&o, false, &m, &err));
    for (int i = 0; i < 3; i++) {
        OK(srv_models_add(m, "a.gguf", NULL, NULL, NULL, &err));
        OK(srv_models_add(m, "a.gguf", "a", NULL, NULL, &err)); /* once more is once */
        FAILS(srv_models_add(m, "b.gguf", "a", NULL, NULL, &err), BITNET_ARGUMENT, "taken");
        FAILS(srv_models_add(m, "notes.txt", "nano", NULL, NULL, &err), BITNET_ARGUMENT, "taken");
        assert_int_equal(state_of(m, "a"), SRV_LOADED);
        srv_model *a = use(m, "a");
        FAILS(srv_models_remove(m, "a", &err), BITNET_AGAIN, "in use");
        FAILS(srv_models_rest(m, "a", &err), BITNET_AGAIN, "in use");
        srv_model_release(m, a);
        OK(srv_models_rest(m, "a", &err)); /* it is still offered */
        assert_int_equal(state_of(m, "a"), SRV_UNLOADED);
        use_once(m, "a");
        OK(srv_models_remove(m, "a", &err));
        FAILS(srv_model_use(m, "a", NULL, NULL, &a, &err), BITNET_NOT_AVAILABLE, "a");
        FAILS(srv_models_remove(m, "a", &err), BITNET_NOT_AVAILABLE, "a");
        assert_false(srv_models_at(m, 1, &row));
    }
    OK(srv_models_remove(m, "nano", &err)); /* given at start: unloaded alone */
    assert_int_equal(state_of(m, "nano"), SRV_UNLOADED);
    use_once(m, "nano");
    char bad[512];
    path_of(bad, p.dir, "bad.gguf");
    copy_file(TEST_SOURCE_DIR "/LICENSE", bad);
    FAILS(srv_models_add(m, "bad.gguf", NULL, NULL, NULL, &err), BITNET_MODEL, "bad.gguf");
    assert_false(srv_models_at(m, 1, &row));
    srv_models_close(m);
    place_remove(&p);
}

/* Whoever may load models cannot use up the places: every name and every failure leaves its own. */
static void forgotten_ones_leave_their_places(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {NANO_PATH}, *dirs[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.load_dirs = dirs;
    o.n_load_dirs = 1;
    srv_models *m = NULL;
    srv_model_row row;
    char bad[512], name[32];
    path_of(bad, p.dir, "bad.gguf");
    copy_file(TEST_SOURCE_DIR "/LICENSE", bad);
    OK(srv_models_open(&o, true, &m, &err));
    for (int i = 0; i < 1100; i++) {
        snprintf(name, sizeof name, "bad-%d", i);
        FAILS(srv_models_add(m, "bad.gguf", name, NULL, NULL, &err), BITNET_MODEL, "bad.gguf");
    }
    OK(srv_models_add(m, "a.gguf", "first", NULL, NULL, &err));
    assert_true(srv_models_at(m, 1, &row));
    assert_string_equal(row.name, "first");
    OK(srv_models_remove(m, "first", &err));
    OK(srv_models_add(m, "b.gguf", "second", NULL, NULL, &err));
    assert_string_equal(row.name, "first"); /* a row is what was, not what is */
    assert_true(srv_models_at(m, 1, &row));
    assert_string_equal(row.name, "second");
    assert_non_null(strstr(row.path, "b.gguf"));
    srv_models_close(m);
    place_remove(&p);
}

/* ---- several threads ---- */

typedef struct slow {
    srv_models *m;
    atomic_int go, seen;
} slow;

/* Loading stands still until it is told to go on. */
static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    slow *s = user;
    (void)done, (void)total;
    atomic_store(&s->seen, 1);
    while (!atomic_load(&s->go))
        usleep(100);
    return true;
}

static void *load_a(void *user)
{
    slow *s = user;
    use_once(s->m, "a");
    return NULL;
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void loading_is_visible(void **state)
{
    (void)state;
    place p = place_make();
    slow s = {0};
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.engine.on_progress = on_progress;
    o.engine.progress_user = &s;
    srv_model *model = NULL;
    OK(srv_models_open(&o, true, &s.m, &err));
    pthread_t loader, second;
    assert_int_equal(pthread_create(&loader, NULL, load_a, &s), 0);
    while (!atomic_load(&s.seen))
        usleep(100);
    assert_int_equal(state_of(s.m, "a"), SRV_LOADING);
    FAILS(srv_models_remove(s.m, "a", &err), BITNET_AGAIN, "loaded");
    FAILS(srv_model_use(s.m, "a", at_once, NULL, &model, &err), BITNET_CANCELLED, "ended");
    assert_int_equal(pthread_create(&second, NULL, load_a, &s), 0);
    atomic_store(&s.go, 1);
    pthread_join(loader, NULL);
    pthread_join(second, NULL);
    assert_int_equal(state_of(s.m, "a"), SRV_LOADED);
    srv_models_close(s.m);
    place_remove(&p);
}

static void an_added_model_nobody_wants_is_not_offered(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {NANO_PATH}, *dirs[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.load_dirs = dirs;
    o.n_load_dirs = 1;
    srv_models *m = NULL;
    srv_model_row row;
    OK(srv_models_open(&o, true, &m, &err));
    FAILS(srv_models_add(m, "a.gguf", NULL, at_once, NULL, &err), BITNET_CANCELLED, "");
    assert_false(srv_models_at(m, 1, &row));
    OK(srv_models_add(m, "a.gguf", NULL, NULL, NULL, &err));
    assert_int_equal(state_of(m, "a"), SRV_LOADED);
    srv_models_close(m);
    place_remove(&p);
}

static void *add_a(void *user)
{
    slow *s = user;
    OK(srv_models_add(s->m, "a.gguf", NULL, NULL, NULL, &err));
    return NULL;
}

/* Withdraws a wish for what another has got meanwhile. */
static bool once_it_is_there(void *user)
{
    slow *s = user;
    atomic_store(&s->go, 1);
    while (state_of(s->m, "a") != SRV_LOADED)
        usleep(100);
    return true;
}

static void a_withdrawn_wish_takes_nothing_from_others(void **state)
{
    (void)state;
    place p = place_make();
    slow s = {0};
    const char *paths[] = {NANO_PATH}, *dirs[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.load_dirs = dirs;
    o.n_load_dirs = 1;
    o.engine.on_progress = on_progress;
    o.engine.progress_user = &s;
    OK(srv_models_open(&o, true, &s.m, &err));
    pthread_t loader;
    assert_int_equal(pthread_create(&loader, NULL, add_a, &s), 0);
    while (!atomic_load(&s.seen))
        usleep(100);
    FAILS(srv_models_add(s.m, "a.gguf", NULL, once_it_is_there, &s, &err), BITNET_CANCELLED, "a");
    pthread_join(loader, NULL);
    assert_int_equal(state_of(s.m, "a"), SRV_LOADED); /* and offered */
    srv_models_close(s.m);
    place_remove(&p);
}

static void a_load_nobody_wants_ends(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    srv_models *m = NULL;
    srv_model *model = NULL;
    OK(srv_models_open(&o, true, &m, &err));
    FAILS(srv_model_use(m, "a", at_once, NULL, &model, &err), BITNET_CANCELLED, "");
    assert_int_equal(state_of(m, "a"), SRV_UNLOADED);
    use_once(m, "a");
    srv_models_close(m);
    place_remove(&p);
}

typedef struct visitor {
    srv_models *m;
    uint64_t seed;
    const said *want;
    const srv_job_options *job;
} visitor;

static void *visit(void *user)
{
    visitor *v = user;
    for (int i = 0; i < 6; i++) {
        srv_model *model = NULL;
        bitnet_error e = {0};
        bitnet_status st =
            srv_model_use(v->m, names[test_rand(&v->seed) % 3], NULL, NULL, &model, &e);
        if (st == BITNET_AGAIN) /* the others use both that may be loaded */
            continue;
        if (st != BITNET_OK)
            fail_msg("%s", e.message);
        answer *a = answer_of(model->scheduler, v->job);
        assert_int_equal(a->error.status, BITNET_OK);
        assert_said(&a->choice[0], v->want, "a visitor");
        answer_free(a);
        srv_model_release(v->m, model);
    }
    return NULL;
}

/* Two of three models fit; four threads want any of them. */
static void swaps_under_load(void **state)
{
    (void)state;
    place p = place_make();
    const char *paths[] = {p.dir};
    srv_models_options o = options(paths, 1);
    o.max_loaded = 2;
    srv_models *m = NULL;
    nano n = nano_open(1);
    int32_t ids[40];
    nano_ids(&n, 3, ids, 40);
    srv_job_options job;
    srv_job_options_init(&job);
    job.ids = ids;
    job.n_ids = 40;
    job.max_tokens = 12;
    job.sampling.temperature = 0;
    said *want = calloc(1, sizeof *want);
    alone(&n, &job, 0, want);
    OK(srv_models_open(&o, true, &m, &err));
    pthread_t threads[4];
    visitor v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = (visitor){m, (uint64_t)i, want, &job};
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &v[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    srv_models_drain(m);
    srv_job *late = NULL;
    for (int i = 0; i < 3; i++) {
        srv_model *model = use(m, names[i]); /* also one that is loaded only now */
        FAILS(srv_job_submit(model->scheduler, &job, &late, &err), BITNET_CANCELLED, "shutting");
        srv_model_release(m, model);
    }
    srv_models_close(m);
    nano_close(&n);
    free(want);
    place_remove(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_offered),
        cmocka_unit_test(paths_are_refused),
        cmocka_unit_test(names_choose),
        cmocka_unit_test(least_used_goes),
        cmocka_unit_test(budget_is_kept),
        cmocka_unit_test(a_look_is_no_use),
        cmocka_unit_test(none_goes_in_vain),
        cmocka_unit_test(caches_keep_the_budget),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(broken_ones_are_remembered),
        cmocka_unit_test(only_from_allowed_folders),
        cmocka_unit_test(added_and_removed),
        cmocka_unit_test(forgotten_ones_leave_their_places),
        cmocka_unit_test(loading_is_visible),
        cmocka_unit_test(a_withdrawn_wish_takes_nothing_from_others),
        cmocka_unit_test(a_load_nobody_wants_ends),
        cmocka_unit_test(an_added_model_nobody_wants_is_not_offered),
        cmocka_unit_test(swaps_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
