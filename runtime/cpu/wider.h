/* The runtime is compiled for any processor of its kind. FOR_WIDER compiles a loop through which
 * every weight or gradient goes for the wider ones too; the same bits come out. */
#ifndef WIDER_H
#define WIDER_H

#if defined __x86_64__ && !defined __clang__
#define FOR_WIDER __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_WIDER
#endif

#endif
