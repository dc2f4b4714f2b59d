/* chat_probe.h - how a file's own chat template writes the calls of tools that an assistant made:
 * found out by letting it write one. */
#ifndef BNET_CHAT_PROBE_H
#define BNET_CHAT_PROBE_H

#include "text/chat_own.h"

/* Sets text_arguments, null_content and style of a template that is usable and whose `tools` and
 * `typed` are known. Of one that shows no call, whatever it is given, the first two stay false, and
 * the style is what its text suggests. Fails: MEMORY. */
bitnet_status bnet_chat_probe(bnet_chat_own *o, bitnet_error *err);

#endif
