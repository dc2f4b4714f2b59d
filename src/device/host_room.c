/* host_room.c - how much memory this process can still take: what the machine has left, what each
 * control group above us leaves of its limit, what the limits of the process leave. Hides: where
 * Linux writes that down. Read anew at each call. */
#include "device/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, STAT_MAX = 2048, DIR_MAX = 640 };

static void lower(bnet_host_room *room, uint64_t limit, uint64_t used, const char *what,
                  const char *where)
{
    uint64_t left = limit > used ? limit - used : 0;
    if (left >= room->free)
        return;
    room->free = left;
    snprintf(room->limit, sizeof room->limit, "%s%s of %.2f GiB", what, where,
             (double)limit / 0x1p30);
}

/* ---- control groups ---- */

typedef struct asked {
    const char *root;
    bnet_host_room *room;
} asked;

/* A file of one number of a group; false: it is not there, or says "max". */
static bool read_number(const char *root, const char *folder, const char *name, uint64_t *out)
{
    char path[DIR_MAX], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bnet_read_text(root, path, text, sizeof text) <= 0 || text[0] < '0' || text[0] > '9')
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

static uint64_t number_behind(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtoull(line + n, NULL, 10);
    return 0;
}

/* Bytes of files that the group is charged for: they are given up before anything is refused. */
static uint64_t cached_bytes(const char *root, const char *folder, bool unified)
{
    char path[DIR_MAX], text[STAT_MAX];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (bnet_read_text(root, path, text, sizeof text) <= 0)
        return 0;
    return number_behind(text, unified ? "inactive_file" : "total_inactive_file") +
           number_behind(text, unified ? "active_file" : "total_active_file");
}

/* The limit of any group binds. */
static void lower_by_group(void *user, bool unified, const char *folder, const char *group)
{
    const asked *a = user;
    uint64_t limit = 0, used = 0;
    if (!read_number(a->root, folder, unified ? "memory.max" : "memory.limit_in_bytes", &limit) ||
        !read_number(a->root, folder, unified ? "memory.current" : "memory.usage_in_bytes",
                     &used) ||
        limit >= (uint64_t)1 << 60)
        return;
    uint64_t cached = cached_bytes(a->root, folder, unified);
    lower(a->room, limit, used > cached ? used - cached : 0, "the limit of control group ", group);
}

/* ---- the process and the machine ---- */

static void read_limits(const char *root, bnet_host_room *room)
{
    static const struct {
        int resource;
        const char *name, *used;
    } rows[] = {{RLIMIT_AS, "RLIMIT_AS", "VmSize"}, {RLIMIT_DATA, "RLIMIT_DATA", "VmData"}};
    char text[TEXT_MAX];
    bool known = bnet_read_text(root, "/proc/self/status", text, sizeof text) > 0;
    for (size_t i = 0; known && i < BNET_COUNT(rows); i++) {
        struct rlimit l;
        if (getrlimit(rows[i].resource, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
            lower(room, (uint64_t)l.rlim_cur, bnet_kib_of(text, rows[i].used), rows[i].name, "");
    }
}

/* What the machine has left; all that it has where nothing says so. */
static uint64_t machine_free(const char *root)
{
    char text[TEXT_MAX];
    if (bnet_read_text(root, "/proc/meminfo", text, sizeof text) > 0 &&
        bnet_kib_of(text, "MemTotal"))
        return bnet_kib_of(text, "MemAvailable");
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bnet_host_room bnet_host_room_read(const char *root)
{
    bnet_host_room room = {.free = machine_free(root), .limit = "the machine's memory"};
    bnet_control_groups(root, "memory", lower_by_group, &(asked){root, &room});
    read_limits(root, &room);
    return room;
}

bitnet_status bnet_host_admit(bnet_host_ledger *l, uint64_t need, const char *what,
                              const char *remedy, uint64_t *held, bitnet_error *err)
{
    bnet_host_room room = bnet_host_room_read(l->root ? l->root : "");
    uint64_t others = atomic_fetch_add(&l->reserved, need);
    bool fits = others <= room.free && need <= room.free - others;
    if (held)
        *held = fits ? need : 0;
    if (!held || !fits)
        atomic_fetch_sub(&l->reserved, need);
    if (fits)
        return BITNET_OK;
    return bnet_fail(err, BITNET_MEMORY,
                     "%s %.3f GiB; free are %.3f GiB (%s), of which open sessions and pools have "
                     "reserved %.3f GiB; %s",
                     what, (double)need / 0x1p30, (double)room.free / 0x1p30, room.limit,
                     (double)others / 0x1p30, remedy);
}
