/* read_text.c - small files of /proc and /sys, below a root that tests may move. */
#include "device/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

long bnet_read_text(const char *root, const char *path, char *buf, size_t cap)
{
    char full[4096];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof full)
        return -1;
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < cap) {
        got = read(fd, buf + used, cap - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    buf[used] = '\0';
    return got < 0 && used == 0 ? -1 : (long)used;
}
