/* session_progress.c - how far a prompt has come, in tokens. Hides: what part of a pass is done
 * when some of its layers are. */
#include "engine/engine.h"

void bitnet_session_on_progress(bitnet_session *s, bitnet_progress_fn progress, void *user)
{
    if (!s)
        return;
    s->progress = (bnet_progress){.tell = progress, .user = user};
}

void bnet_session_count(bitnet_session *s, size_t n_tokens, bool several)
{
    s->counting = several;
    s->progress.done = s->n_counted = 0;
    s->progress.total = n_tokens;
}

/* If logits of all tokens are wanted, layers count as half of the work and the head as the other.
 */
static bool on_layer(void *user, int n_done, int n_layers)
{
    bitnet_session *s = user;
    if (bnet_session_cancelled(s))
        return false;
    uint64_t whole = (uint64_t)s->n_in_pass * (uint64_t)n_done / (uint64_t)n_layers;
    return !s->counting ||
           bnet_progress_at(&s->progress, s->n_counted + (s->pass_has_head ? whole / 2 : whole));
}

void bnet_session_watch(bitnet_session *s, int n_tokens, bool head)
{
    bool asked = n_tokens > 1 && ((s->counting && s->progress.tell) || s->cancel.ask);
    s->n_in_pass = n_tokens;
    s->pass_has_head = head;
    bnet_workspace_on_layer(s->scratch->ws, asked ? on_layer : NULL, s);
}

bool bnet_session_delivered(bitnet_session *s, int n_rows)
{
    uint64_t half = (uint64_t)(s->n_in_pass + n_rows) / 2;
    return !s->counting || bnet_progress_at(&s->progress, s->n_counted + half);
}

bool bnet_session_passed(bitnet_session *s, int n_tokens)
{
    s->n_counted += (uint64_t)n_tokens;
    return !s->counting || bnet_progress_at(&s->progress, s->n_counted);
}
