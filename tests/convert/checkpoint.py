"""checkpoint.py - what a converted model must hold, computed by numpy from the Hugging Face directory: keys, shapes, values.
Independent of the library: written from the descriptions of the two formats."""
import json
import os
import struct

import numpy as np

LINEARS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
           "ffn_down": "mlp.down_proj"}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}
FILE_TYPES = {"f32": 0, "f16": 1, "tq1_0": 36, "tq2_0": 37, "i2_s": 40}


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def bf16(raw):
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)


class Checkpoint:
    def __init__(self, path):
        self.path = path
        self.config = read_json(os.path.join(path, "config.json"))
        self.quant = self.config.get("quantization_config", {})
        self.llama = self.config["architectures"][0] == "LlamaForCausalLM"
        self.where = {}
        for name in sorted(os.listdir(path)):
            if name.endswith(".safetensors"):
                self.index(os.path.join(path, name))

    def index(self, path):
        with open(path, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(n))
        for name, t in header.items():
            if name != "__metadata__":
                self.where[name] = (path, 8 + n + t["data_offsets"][0], t)

    def raw(self, name):
        path, at, t = self.where[name]
        with open(path, "rb") as f:
            f.seek(at)
            return f.read(t["data_offsets"][1] - t["data_offsets"][0]), t["dtype"], t["shape"]

    def floats(self, name):
        raw, dtype, shape = self.raw(name)
        if dtype == "BF16":
            return bf16(raw).reshape(shape)
        return np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32).reshape(shape)

    def ternary(self, name):
        """Trits and f32 scale of a projection, rows in the order of the checkpoint."""
        raw, dtype, shape = self.raw(name + ".weight")
        if dtype == "U8":
            packed = np.frombuffer(raw, np.uint8).reshape(shape)
            trits = np.concatenate([packed >> s & 3 for s in (0, 2, 4, 6)]).astype(np.int8) - 1
            scale = np.float32(self.floats(name + ".weight_scale").reshape(()))
            multiply = self.quant.get("linear_class") == "autobitlinear"
            return trits, scale if multiply else np.float32(1) / scale
        w = self.floats(name + ".weight").astype(np.float64)
        scale = np.float32(max(np.abs(w).mean(), 1e-5))
        return np.clip(np.rint(w / np.float64(scale)), -1, 1).astype(np.int8), scale

    def reorder(self, gguf, rows):
        """llama: within each head, row 2i+j comes from row j*d/2+i."""
        if not self.llama or gguf not in ("attn_q", "attn_k"):
            return rows
        heads = self.config["num_attention_heads" if gguf == "attn_q" else "num_key_value_heads"]
        d = rows.shape[0] // heads
        return rows.reshape(heads, 2, d // 2, -1).swapaxes(1, 2).reshape(rows.shape)

    def linears(self):
        """(output name, trits, scale), or (output name, values, None) of a model that is not ternary."""
        for i in range(self.config["num_hidden_layers"]):
            for gguf, hf in LINEARS.items():
                name = "model.layers.%d.%s" % (i, hf)
                if self.llama and not self.quant:
                    values, scale = self.floats(name + ".weight"), None
                else:
                    values, scale = self.ternary(name)
                yield "blk.%d.%s.weight" % (i, gguf), self.reorder(gguf, values), scale

    def norms(self):
        for i in range(self.config["num_hidden_layers"]):
            for gguf, hf in NORMS.items():
                if not (self.llama and "sub_norm" in gguf):
                    yield "blk.%d.%s.weight" % (i, gguf), self.floats("model.layers.%d.%s.weight" % (i, hf))
        yield "output_norm.weight", self.floats("model.norm.weight")

    def heads(self):
        yield "token_embd.weight", self.floats("model.embed_tokens.weight")
        if not self.config["tie_word_embeddings"]:
            yield "output.weight", self.floats("lm_head.weight")

    def keys(self, kind):
        """Every key the output must have."""
        c = self.config
        arch = "llama" if self.llama else "bitnet-b1.58"
        tok = read_json(os.path.join(self.path, "tokenizer.json"))
        names = read_json(os.path.join(self.path, "tokenizer_config.json"))
        n = c["vocab_size"]
        tokens, types = [b""] * n, [1] * n
        for text, i in tok["model"]["vocab"].items():
            tokens[i] = text.encode()
        for t in tok["added_tokens"]:
            tokens[t["id"]], types[t["id"]] = t["content"].encode(), 3 if t["special"] else 4
        merges = [(m if isinstance(m, str) else " ".join(m)).encode() for m in tok["model"]["merges"]]
        keys = {
            "general.architecture": arch, "general.name": os.path.basename(self.path.rstrip("/")),
            "general.file_type": FILE_TYPES[kind], "general.quantization_version": 2,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.scores": [0.0] * n, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": c["bos_token_id"], "tokenizer.ggml.eos_token_id": c["eos_token_id"][0],
            "tokenizer.ggml.eot_token_id": c["eos_token_id"][1], "tokenizer.ggml.add_bos_token": True,
            "tokenizer.chat_template": names["chat_template"],
        }
        for key, value in (
                ("vocab_size", n), ("context_length", c["max_position_embeddings"]),
                ("embedding_length", c["hidden_size"]), ("block_count", c["num_hidden_layers"]),
                ("feed_forward_length", c["intermediate_size"]),
                ("rope.dimension_count", c["hidden_size"] // c["num_attention_heads"]),
                ("attention.head_count", c["num_attention_heads"]),
                ("attention.head_count_kv", c["num_key_value_heads"]),
                ("attention.layer_norm_rms_epsilon", float(np.float32(c["rms_norm_eps"]))),
                ("rope.freq_base", float(np.float32(c["rope_theta"]))), ("hidden_activation", c["hidden_act"])):
            keys[arch + "." + key] = value
        return keys
