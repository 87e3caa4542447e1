// Which variant of the kernels this processor can run: its place in VARIANTS of _compiler.py.

extern "C" int jaxseq_best_variant(void) {
#if defined(__x86_64__)
  // These look at the operating system as well, which must save the registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return 2;
  return 1;
#else
  return 0;
#endif
}
