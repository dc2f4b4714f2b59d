/* control_groups.c - which folders of control groups bind this process. Hides: the two versions,
 * that controllers of the first have trees of their own, and what a namespace shows of them. */
#include "device/probe.h"

#include <stdio.h>

enum { TEXT_MAX = 4096, DIR_MAX = 512 };

static const char mount[] = "/sys/fs/cgroup";

typedef struct visit {
    const char *controller;
    bnet_group_fn *fn;
    void *user;
} visit;

/* A group and all above it. Without a namespace the path that /proc/self/cgroup has exists; inside
 * one only its root does. */
static void climb(const visit *v, bool unified, char *dir)
{
    char folder[DIR_MAX + 80];
    if (strstr(dir, "..")) /* moved outside our view: only the root is left to ask */
        dir[0] = '\0';
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s%s%s", mount, unified ? "" : "/",
                 unified ? "" : v->controller, dir);
        v->fn(v->user, unified, folder, dir[0] ? dir : "/");
        char *slash = strrchr(dir, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Is `name` in the list a,b,c of n bytes? */
static bool has_controller(const char *list, size_t n, const char *name)
{
    size_t length = strlen(name);
    for (const char *end = list + n; list < end;) {
        size_t k = strcspn(list, ",:");
        if (k == length && memcmp(list, name, k) == 0)
            return true;
        list += k + 1;
    }
    return false;
}

/* A line "5:memory,cpu:/path" (version 1) or "0::/path" (version 2). False: it is of other
 * controllers. */
static bool visit_line(const visit *v, const char *line)
{
    const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    bool unified = strncmp(line, "0::", 3) == 0;
    char dir[DIR_MAX];
    if (!second ||
        (!unified && !has_controller(first + 1, (size_t)(second - first - 1), v->controller)))
        return false;
    snprintf(dir, sizeof dir, "%.*s", (int)BNET_MIN(strcspn(second + 1, "\n"), sizeof dir - 1),
             second + 1);
    climb(v, unified, dir);
    return true;
}

void bnet_control_groups(const char *root, const char *controller, bnet_group_fn *fn, void *user)
{
    const visit v = {controller, fn, user};
    char text[TEXT_MAX], none[1] = "";
    bool found = false;
    if (bnet_read_text(root, "/proc/self/cgroup", text, sizeof text) > 0)
        for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
            found |= visit_line(&v, p);
    if (found)
        return;
    climb(&v, true, none);
    climb(&v, false, none);
}
