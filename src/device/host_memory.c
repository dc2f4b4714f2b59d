/* host_memory.c - how much memory the system and this process use, from /proc, read at each call.
 */
#include "device/probe.h"

enum { TEXT_MAX = 16384 };

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
