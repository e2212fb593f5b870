"""Numbers near the ends of 64 bits in every key of keys.def and in hyper-parameters: `planc check`
answers with a status
of its own (0, 1 or 2), without a crash and soon.   numbers.py PLANC KEYS.DEF BASE.PLAN"""
import re, subprocess, sys, time

planc, table, base = sys.argv[1:]
WHOLE = ['0', '4294967296', '2147483648', '9223372036854775807', '9223372036854775808', '1..9223372036854775807',
         '-9223372036854775808..9223372036854775807']
VALUES = {'WHOLE': WHOLE, 'NUMBER': ['1e300', '1e-45', '-1e300'], 'BYTES': ['9223372036854775807B', '8388608TiB', '1B'],
          'RATE': ['8000000PB/s', '1B/s'], 'FLOPS': ['9000PFLOP/s', '1FLOP/s'],
          'TIME': ['9223372036854775807h', '1ns'], 'LIST': ['[0..9223372036854775807]', '[-1..3]', '[1e300, 0]'],
          'SWITCH': ['maybe'], 'WORD': [], 'STRING': ['*/'], 'FILES': ['/dev/null']}
section, cases = {}, []
for line in open(table):
    if m := re.match(r'SECTION\((\w+), "([^"]+)"', line):
        section[m[1]] = m[2]
    if m := re.match(r'KEY\((\w+), (\w+), (\w+)', line):
        cases += [[f'{section[m[1]]}.{m[2]}={v}'] for v in VALUES.get(m[3], WHOLE)]
for name in 'layers hidden vocab heads kv_heads head_dim experts top_k expert_width'.split():
    cases += [[f'model.{name}={v}'] for v in WHOLE]
for a, b in [('batch.local', 'mesh.fsdp'), ('mesh.dp', 'mesh.fsdp'), ('batch.local', 'batch.sequence'),
             ('batch.global', 'schedule.steps'), ('batch.global', 'batch.sequence'), ('model.hidden', 'model.vocab'),
             ('model.experts', 'model.expert_width'), ('cluster.nodes', 'cluster.devices_per_node'),
             ('model.heads', 'model.head_dim'), ('batch.sequence', 'batch.loss_chunks')]:
    for v in ('1048576', '1073741824', '4294967296'):
        cases += [['cluster=cpu', f'{a}={v}', f'{b}={v}']]
bad = []
for sets in cases:
    start = time.time()
    try:
        r = subprocess.run([planc, 'check', base] + [x for s in sets for x in ('--set', s)], capture_output=True,
                           timeout=60)
        status, said = r.returncode, r.stderr.decode(errors='replace')
    except subprocess.TimeoutExpired:
        status, said = 'timeout', ''
    if status not in (0, 1, 2) or (status == 1 and 'error:' not in said):
        bad.append(f'{" ".join(sets)}: {status} {said[:120]!r}')
print(len(cases), 'cases', '; '.join(bad))
sys.exit(bool(bad) or len(cases) < 200)
