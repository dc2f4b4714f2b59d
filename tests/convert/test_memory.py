"""test_memory.py - a checkpoint larger than the memory its conversion may take, with a vocabulary of full size."""
import memory

memory.measure(200, 500 << 20, [["--type", "i2_s"], ["--type", "f16", "--embedding", "q8_0"]],
               "--layers", "4", "--width", "1024", "--ffn", "4096", "--heads", "8", "--kv-heads", "4")
