"""Plans, paths and tensor names that try to become code or to break a reader of JSON.

    text.py make DIR        a folder for each case, with x.plan, whose model file may have a name of its own
    text.py json FILE       the file is JSON; prints what its "title" or "plan" says
    text.py names FILE...   the tensor names of a safetensors file or of a probe, in order, one per line
"""
import json, os, struct, sys

MODEL = '''architecture tiny {
    hyper { vocab; hidden }
    table = weight("%s", [vocab, hidden])
    ce = cross_entropy(linear(embedding(tokens, table), table), targets)
    loss = ce
    metrics { ce }
}
'''
PLAN = '''use "%s"
use "clusters/cpu.plan"
plan "%s" {
    model tiny { vocab = 256;  hidden = 8 }
    cluster cpu { }
    batch { sequence = 4;  local = 1 }
    schedule constant { steps = 1 }
    data { train = "tokens.bin";  format = bytes }
}
'''
ATTACK = b'*/ __attribute__((constructor)) void f(void) { __builtin_trap(); } /*'
CASES = {
    'title_comment': dict(title=ATTACK),
    'title_slashes': dict(title=b'/*/ //* */*/ **//'),
    'title_trigraphs': dict(title=b'??/?? ??/??/ ??= ??( ???/??/'),
    'title_backslash': dict(title=b'\\" \\\\\\" x00 \\\\'),
    'title_percent': dict(title=b'%s%n%d %%'),
    'title_latin1': dict(title=b'caf\xe9 \xff\xfe'),
    'title_overlong': dict(title=b'\xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80'),
    'title_bidi': dict(title='a \u202e */ b \u2066'.encode()),
    'title_control': dict(title=b'a\x01\x1b[31mb\x7f\x08'),
    'file_comment': dict(file=b'tiny*' + b'end.plan', folder=b'a*'),
    'file_attack': dict(folder=b'x *', file=b' __attribute__((constructor)) void f(void) { __builtin_trap(); } .plan'),
    'file_quote': dict(file=b'm"odel\\.plan'),
    'file_trigraph': dict(file=b'model??.plan'),
    'file_latin1': dict(file=b'mod\xe9l.plan'),
    'file_newline': dict(file=b'mod\nel.plan'),
    'tensor_comment': dict(tensor=b'*/ int x = 1/0; /*'),
    'tensor_quote': dict(tensor=b'a\\"b.weight'),
    'tensor_trigraph': dict(tensor=b'w??/'),
    'tensor_latin1': dict(tensor=b'poids.\xe9\xff'),
}


def make(folder):
    for name, case in CASES.items():
        at = os.path.join(folder, name).encode()
        os.makedirs(os.path.join(at, case.get('folder', b'.')), exist_ok=True)
        file = os.path.join(case.get('folder', b'.'), case.get('file', b'tiny.plan'))
        with open(os.path.join(at, file), 'wb') as f:
            f.write(MODEL.encode() % case.get('tensor', b'table.weight'))
        inside = file.replace(b'\\', b'\\\\').replace(b'"', b'\\"')
        with open(os.path.join(at, b'x.plan'), 'wb') as f:
            f.write(PLAN.encode() % (inside, case.get('title', b'a title')))
        with open(os.path.join(at, b'tokens.bin'), 'wb') as f:
            f.write(bytes(i % 16 for i in range(64)))
        print(name)


def names(path):
    data = open(path, 'rb').read()
    if data[8:9] == b'{':
        size, = struct.unpack('<Q', data[:8])
        return [n for n in json.loads(data[8:8 + size].decode('utf-8')) if n != '__metadata__']
    return list(json.loads(data.decode('utf-8'))['grad_norms_step0'])


if sys.argv[1] == 'make':
    make(sys.argv[2])
elif sys.argv[1] == 'json':
    json.loads(open(sys.argv[2], 'rb').read().decode('utf-8'))
elif sys.argv[1] == 'names':
    for path in sys.argv[2:]:
        print('\n'.join(map(repr, names(path))))
