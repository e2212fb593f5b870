"""Plans that are long in one way: chains of constants, paths, sums."""
head = 'use "models/llama.plan"\nuse "clusters/cpu.plan"\n'
tail = '''plan "x" { model llama { layers = 2;  hidden = c;  heads = 4;  vocab = 256;  ffn = 64 }
 cluster cpu { }
 batch { sequence = 16;  local = 1 } }
'''
n = 10000
chain = [f'c{i} = ' + (f'c{i - 1} + 0' if i else '64') for i in range(n)]


def write(name, text):
    open(name + '.plan', 'w').write(text)


write('chain_forward', head + '\n'.join(chain + [f'c = c{n - 1}']) + '\n' + tail)
write('chain_backward', head + '\n'.join([f'c = c{n - 1}'] + chain[::-1]) + '\n' + tail)
write('path', head + 'c = 64\n' + tail.replace('batch {', 'batch { ' + '.'.join(['a'] * 100000) + ' = 3; '))
write('folders', head + 'use "' + 'a/' * 100000 + 'x.plan"\nc = 64\n' + tail)
write('sum', head + 'c = 64' + ' + 0' * 100000 + '\n' + tail)
