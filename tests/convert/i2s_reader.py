"""i2s_reader.py - reads GGUF files with I2_S tensors, written from the description of the format alone: it shares no code
with the library and none with the gguf package, which does not know the type."""
import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
F32, F16, I2_S = 0, 1, 36


class File:
    """keys: name -> value; tensors: name -> (type, shape outermost first, bytes)."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 0
        assert self.take(4) == b"GGUF"
        self.version = self.number("<I")
        n_tensors, n_keys = self.number("<Q"), self.number("<Q")
        self.keys = {}
        for _ in range(n_keys):
            name = self.text().decode()
            assert name not in self.keys
            self.keys[name] = self.value(self.number("<I"))
        infos = [self.info() for _ in range(n_tensors)]
        start = -(-self.at // 32) * 32
        ends = sorted(offset for _, _, _, offset in infos) + [len(self.data) - start]
        self.tensors = {}
        for name, shape, kind, offset in infos:
            assert offset % 32 == 0 and name not in self.tensors
            end = min(e for e in ends if e > offset)
            self.tensors[name] = (kind, shape, self.data[start + offset:start + end])

    def take(self, n):
        assert self.at + n <= len(self.data)
        piece = self.data[self.at:self.at + n]
        self.at += n
        return piece

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self):
        return self.take(self.number("<Q"))

    def value(self, kind):
        if kind == STRING:
            return self.text().decode()
        if kind == ARRAY:
            inner, n = self.number("<I"), self.number("<Q")
            return [self.text() if inner == STRING else self.value(inner) for _ in range(n)]
        return self.number(SCALARS[kind])

    def info(self):
        name = self.text().decode()
        dims = [self.number("<Q") for _ in range(self.number("<I"))]
        kind = self.number("<I")
        return name, tuple(reversed(dims)), kind, self.number("<Q")

    def trits(self, name):
        """(int8 matrix of -1, 0, +1; f32 scale; the 28 bytes behind it)."""
        kind, shape, data = self.tensors[name]
        assert kind == I2_S
        n = shape[0] * shape[1]
        assert len(data) >= n // 4 + 32
        groups = np.frombuffer(data[:n // 4], np.uint8).reshape(-1, 32)  # each holds 128 weights
        codes = np.stack([groups >> shift & 3 for shift in (6, 4, 2, 0)], axis=1).reshape(shape)
        assert codes.max() <= 2, "code 3"
        return codes.astype(np.int8) - 1, struct.unpack("<f", data[n // 4:n // 4 + 4])[0], data[n // 4 + 4:n // 4 + 32]

    def floats(self, name):
        kind, shape, data = self.tensors[name]
        dtype = {F32: "<f4", F16: "<f2"}[kind]
        n = int(np.prod(shape))
        return np.frombuffer(data[:n * np.dtype(dtype).itemsize], dtype).reshape(shape)
