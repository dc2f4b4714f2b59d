/* receipts.c - where receipts of answers lie while they can be asked for: in a folder that belongs
 * to this process alone. A lock inside says that the process lives; folders whose lock is free are
 * what a server that was killed has left, and go. */
#include "metrics/receipts.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "bitnet-receipts-"
enum {
    ID_SIZE = 40,
    MOST = 65536,
    UNLOCKED_SECONDS = 60, /* a folder without a lock is that of a server which just begins */
    LOOSE_SECONDS = 60,    /* a file of no known id may still be on its way to its name */
};

struct srv_receipts {
    char *dir;
    int lock, fd; /* of the lock's file and of the folder */
    pthread_mutex_t mutex;
    char (*ids)[ID_SIZE]; /* a ring of `most`; "": none yet */
    size_t most, next;
};

/* ---- folders ---- */

static bool is_ours(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 077) == 0;
}

/* Calls `each` with the name of every entry but . and .. */
static void each_entry(int folder, void (*each)(int folder, const char *name, void *user),
                       void *user)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d && copy >= 0)
        close(copy);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            each(folder, e->d_name, user);
    if (d)
        closedir(d);
}

static void remove_entry(int folder, const char *name, void *user)
{
    (void)user;
    unlinkat(folder, name, 0);
}

/* Is nobody behind the folder? Its lock is free, or it is old and has none. */
static bool abandoned(int folder)
{
    struct stat st;
    int lock = openat(folder, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0)
        return fstat(folder, &st) == 0 && time(NULL) - st.st_mtime > UNLOCKED_SECONDS;
    bool free_lock = flock(lock, LOCK_EX | LOCK_NB) == 0;
    close(lock);
    return free_lock;
}

static void sweep_entry(int parent, const char *name, void *user)
{
    (void)user;
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    if (is_ours(folder) && abandoned(folder)) {
        each_entry(folder, remove_entry, NULL);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
    close(folder);
}

static void sweep(const char *parent)
{
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    each_entry(fd, sweep_entry, NULL);
    close(fd);
}

/* ---- opening ---- */

static bool make_folder(srv_receipts *r, const char *parent)
{
    size_t n = strlen(parent) + sizeof "/" PREFIX "XXXXXX";
    r->dir = malloc(n);
    if (!r->dir)
        return false;
    snprintf(r->dir, n, "%s/" PREFIX "XXXXXX", parent);
    if (!mkdtemp(r->dir)) {
        free(r->dir);
        r->dir = NULL;
        return false;
    }
    r->fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r->fd >= 0)
        r->lock = openat(r->fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return r->lock >= 0 && flock(r->lock, LOCK_EX | LOCK_NB) == 0;
}

srv_receipts *srv_receipts_open_in(const char *parent, size_t most)
{
    srv_receipts *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->fd = r->lock = -1;
    r->most = most < 1 ? 1 : most > MOST ? MOST : most;
    pthread_mutex_init(&r->mutex, NULL);
    r->ids = calloc(r->most, sizeof *r->ids);
    sweep(parent);
    if (r->ids && make_folder(r, parent))
        return r;
    srv_receipts_close(r);
    return NULL;
}

srv_receipts *srv_receipts_open(size_t most)
{
    char own[64];
    snprintf(own, sizeof own, "/run/user/%lu", (unsigned long)geteuid());
    srv_receipts *r = srv_receipts_open_in(own, most);
    return r ? r : srv_receipts_open_in("/tmp", most);
}

void srv_receipts_close(srv_receipts *r)
{
    if (!r)
        return;
    if (r->fd >= 0) {
        each_entry(r->fd, remove_entry, NULL);
        close(r->fd);
    }
    if (r->dir)
        rmdir(r->dir);
    if (r->lock >= 0)
        close(r->lock);
    pthread_mutex_destroy(&r->mutex);
    free(r->ids);
    free(r->dir);
    free(r);
}

const char *srv_receipts_dir(const srv_receipts *r)
{
    return r->dir;
}

/* ---- ids ---- */

bool srv_receipts_new(char id[40])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    char *p = id + snprintf(id, ID_SIZE, "rcp_");
    for (size_t i = 0; i < sizeof bytes; i++)
        p += snprintf(p, 3, "%02x", bytes[i]);
    return true;
}

/* "rcp_" and 32 hexadecimal digits: nothing that could name another file. */
static bool is_id(const char *id)
{
    return strlen(id) == 36 && strncmp(id, "rcp_", 4) == 0 &&
           strspn(id + 4, "0123456789abcdef") == 32;
}

static void file_of(const char *id, char name[ID_SIZE + 8])
{
    snprintf(name, ID_SIZE + 8, "%s.json", id);
}

/* Does the name, also that of a file which is still being written, begin with a known id? */
static bool is_kept(const srv_receipts *r, const char *name)
{
    for (size_t i = 0; i < r->most; i++)
        if (r->ids[i][0] && strncmp(r->ids[i], name, strlen(r->ids[i])) == 0)
            return true;
    return false;
}

/* A receipt that was written when its id was forgotten already. */
static void remove_loose(int folder, const char *name, void *user)
{
    const srv_receipts *r = user;
    struct stat st;
    if (strcmp(name, "lock") == 0 || is_kept(r, name) ||
        fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (time(NULL) - st.st_mtime > LOOSE_SECONDS)
        unlinkat(folder, name, 0);
}

void srv_receipts_keep(srv_receipts *r, const char id[40])
{
    char oldest[ID_SIZE + 8];
    pthread_mutex_lock(&r->mutex);
    char *place = r->ids[r->next];
    if (*place) {
        file_of(place, oldest);
        unlinkat(r->fd, oldest, 0);
    }
    snprintf(place, ID_SIZE, "%s", id);
    r->next = (r->next + 1) % r->most;
    if (r->next == 0)
        each_entry(r->fd, remove_loose, r);
    pthread_mutex_unlock(&r->mutex);
}

json_t *srv_receipts_get(srv_receipts *r, const char *id)
{
    char name[ID_SIZE + 8];
    if (!is_id(id))
        return NULL;
    file_of(id, name);
    int fd = openat(r->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    json_t *receipt = fd < 0 ? NULL : json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    if (fd >= 0)
        close(fd);
    return receipt;
}

bool srv_receipts_expected(srv_receipts *r, const char *id)
{
    pthread_mutex_lock(&r->mutex);
    bool expected = is_id(id) && is_kept(r, id);
    pthread_mutex_unlock(&r->mutex);
    return expected;
}
