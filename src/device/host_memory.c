/* host_memory.c - small files of /proc and /sys, below a root that tests may move; and how much
 * memory the system and this process use, read there at each call. */
#include "device/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { TEXT_MAX = 4096 };

long bnet_read_text(const char *root, const char *path, char *buf, size_t cap)
{
    char full[2048];
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

bool bnet_host_memory_read(const char *root, bitnet_host_memory *out)
{
    char text[TEXT_MAX];
    bitnet_host_memory m = {0};
    if (bnet_read_text(root, "/proc/meminfo", text, sizeof text) <= 0)
        return false;
    m.total_bytes = bnet_kib_of(text, "MemTotal");
    m.available_bytes = BNET_MIN(bnet_kib_of(text, "MemAvailable"), m.total_bytes);
    m.used_bytes = m.total_bytes - m.available_bytes;
    if (m.total_bytes == 0)
        return false;
    m.used_percent = 100.0 * (double)m.used_bytes / (double)m.total_bytes;
    if (bnet_read_text(root, "/proc/self/status", text, sizeof text) > 0) {
        m.process_bytes = bnet_kib_of(text, "VmRSS");
        m.process_peak_bytes = bnet_kib_of(text, "VmHWM");
    }
    *out = m;
    return true;
}

bool bnet_resident_read(const char *root, uint64_t *n_bytes)
{
    char text[TEXT_MAX];
    bitnet_host_memory m;
    uint64_t n = bnet_read_text(root, "/proc/self/smaps_rollup", text, sizeof text) > 0
                     ? bnet_kib_of(text, "Rss")
                     : 0;
    if (n == 0 && bnet_host_memory_read(root, &m)) /* before Linux 4.14 */
        n = m.process_bytes;
    if (n)
        *n_bytes = n;
    return n != 0;
}

bitnet_status bitnet_host_memory_read(bitnet_host_memory *out, bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "host memory: out must not be NULL");
    if (!bnet_host_memory_read("", out))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "host memory: /proc/meminfo cannot be read");
    return BITNET_OK;
}
