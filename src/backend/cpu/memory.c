/* memory.c - memory of the CPU backend that is neither a buffer nor a file: packed weights and the
 * scratch of kernels. */
#include "backend/cpu/cpu.h"

#include <sched.h>

enum { PIECE_BYTES = 64 << 20, LOOK_BYTES = 16 << 20 };

static bitnet_status no_room(const char *tensor, const bnet_host_room *room, bitnet_error *err)
{
    return bnet_fail(
        err, BITNET_MEMORY,
        "%s: no room to pack it: free are %.3f GiB (%s); give the process more memory, "
        "or leave weights as they lie in the file (no_pack)",
        tensor, (double)room->free / 0x1p30, room->limit);
}

/* Every LOOK_BYTES: is there room for this and for as much again? */
static bitnet_status check_room(cpu_backend *be, const char *tensor, uint64_t n_bytes,
                                bitnet_error *err)
{
    be->n_unchecked += n_bytes;
    if (be->n_unchecked < LOOK_BYTES)
        return BITNET_OK;
    be->n_unchecked = 0;
    bnet_host_room room = bnet_host_room_read("");
    bool fits = room.free > LOOK_BYTES && n_bytes <= room.free - LOOK_BYTES;
    return fits ? BITNET_OK : no_room(tensor, &room, err);
}

static cpu_piece *new_piece(cpu_backend *be, size_t n_bytes)
{
    cpu_piece *p = bnet_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->n_bytes = BNET_MAX(n_bytes, (size_t)PIECE_BYTES);
    p->data = bnet_alloc_huge(p->n_bytes);
    if (!p->data) {
        bnet_free(p);
        return NULL;
    }
    p->next = be->pieces;
    return be->pieces = p;
}

bitnet_status bnet_cpu_piece_take(cpu_backend *be, const char *tensor, uint64_t n_bytes,
                                  uint8_t **out, bitnet_error *err)
{
    cpu_piece *p = be->pieces;
    if (n_bytes > PTRDIFF_MAX - BNET_ALIGN)
        return bnet_no_memory(err, tensor);
    size_t n = ((size_t)n_bytes + BNET_ALIGN - 1) / BNET_ALIGN * BNET_ALIGN;
    bitnet_status st = check_room(be, tensor, n, err);
    if (st != BITNET_OK)
        return st;
    if ((!p || p->n_bytes - p->used < n) && !(p = new_piece(be, n))) {
        bnet_host_room room = bnet_host_room_read("");
        return no_room(tensor, &room, err);
    }
    *out = p->data + p->used;
    p->used += n;
    return BITNET_OK;
}

/* The most any row of the list that can run here asks for. Kernels that a program registers have
 * other formats than those that are handed scratch, so nothing asks for more later. */
static size_t most_scratch(const cpu_backend *be)
{
    size_t most = 0;
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(be->registry, i)) != NULL; i++)
        if (k->device == BNET_DEV_CPU && !k->outside && (k->needs & ~be->caps.has) == 0)
            most = BNET_MAX(most, (size_t)k->temp_bytes +
                                      (k->op == BNET_OP_ATTENTION ? CPU_SPAN_BYTES : 0));
    return most;
}

bitnet_status bnet_cpu_scratch_open(cpu_backend *be, bitnet_error *err)
{
    cpu_scratch *s = &be->scratch;
    s->n_bytes = most_scratch(be);
    s->n = bnet_pool_threads(be->pool);
    s->slots = bnet_calloc((size_t)s->n, sizeof *s->slots);
    bool ok = s->slots != NULL;
    for (int i = 0; ok && s->n_bytes && i < s->n; i++) /* touched by the thread that uses it */
        ok = (s->slots[i].data = bnet_alloc(s->n_bytes)) != NULL;
    return ok ? BITNET_OK : bnet_no_memory(err, "scratch of kernels");
}

uint8_t *bnet_cpu_scratch_take(cpu_backend *be, int thread)
{
    cpu_slot *slot = &be->scratch.slots[thread];
    while (atomic_exchange_explicit(&slot->busy, true, memory_order_acquire))
        sched_yield();
    return slot->data;
}

void bnet_cpu_scratch_give(cpu_backend *be, int thread)
{
    atomic_store_explicit(&be->scratch.slots[thread].busy, false, memory_order_release);
}

void bnet_cpu_memory_close(cpu_backend *be)
{
    for (cpu_piece *p = be->pieces, *next; p; p = next) {
        next = p->next;
        bnet_free(p->data);
        bnet_free(p);
    }
    for (int i = 0; be->scratch.slots && i < be->scratch.n; i++)
        bnet_free(be->scratch.slots[i].data);
    bnet_free(be->scratch.slots);
}
