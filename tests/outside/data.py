"""Files of tokens that are not what a plan says, as other tools write them.   data.py: into the current folder"""
import gzip, json, random, struct

r = random.Random(3)
ids = [min(int(r.paretovariate(0.4)) + 10, 50256) for _ in range(2048)]
even = [r.randrange(50257) for _ in range(2048)]
u16, u32 = (struct.pack(f'<{len(ids)}{c}', *ids) for c in 'HI')


def write(name, data):
    open(name, 'wb').write(data)


def numpy(data, descr):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': (2048,), }" % descr).encode()
    h += b' ' * (127 - 10 - len(h)) + b'\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(h)) + h + data


text = b'In the beginning God created the heaven and the earth. ' * 60
lines = (json.dumps({'text': 'In the beginning God created the heaven.'}) + '\n').encode() * 60
write('raw16.bin', u16)
write('raw16.npy', u16)  # a name is not a format
write('raw32.bin', u32)
write('wide.bin', struct.pack('<2048q', *ids))
write('even16.bin', struct.pack('<2048H', *even))
write('even32.bin', struct.pack('<2048I', *even))
write('header.npy', numpy(u16, '<u2'))
write('header32.npy', numpy(u32, '<u4'))
write('llmc.bin', struct.pack('<256i', 20240520, 1, 2048, *[0] * 253) + u16)
write('llama3.bin', struct.pack('<256i', 20240801, 7, 2048, *[0] * 253) + u32)
write('litgpt.bin', b'LITPKDS' + struct.pack('<Q', 1) + bytes([8]) + struct.pack('<Q', 2048) + u16)
offsets = [4 * (8 + 2) + 512 * i for i in range(9)]
write('litdata.bin', struct.pack('<10I', 8, *offsets) + u16)
write('index.idx', b'MMIDIDX\x00\x00' + u16)
write('stream.arrow', struct.pack('<4I', 0xFFFFFFFF, 456, 16, 0) + u16)
columns = b'{"column_encodings":["bytes"]}'
write('shard.mds', struct.pack('<4I', 2, 16 + len(columns), 516 + len(columns), 1016 + len(columns))
      + columns + u16)
write('utf16.txt', text.decode().encode('utf-16'))
write('ids.lz4', b'\x04\x22\x4d\x18' + u16)
write('ids.sqlite', b'SQLite format 3\0' + u16)
write('fairseq.idx', b'TNTIDX\0\0' + u16)
write('text.txt', text)
write('lines.jsonl', lines)
write('lines.gz', gzip.compress(lines))
write('tokens.parquet', b'PAR1' + u16 + b'PAR1')
write('x.safetensors', struct.pack('<Q', 200) + b'{"a":{' + u16)
write('small16.bin', struct.pack('<2048H', *[i % 200 for i in range(2048)]))
write('alternating.bin', struct.pack('<2048H', *[i % 2 for i in range(2048)]))
write('constant.bin', struct.pack('<2048H', *[7] * 2048))
write('zeros.bin', bytes(4096))
