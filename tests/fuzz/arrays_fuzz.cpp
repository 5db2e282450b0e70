// Fuzzes the readers of IDX, CIFAR-10 and NumPy files, plain and compressed. For any bytes, each must give a tensor or throw a
// c10::ValueError. The first byte of the input chooses the reader, and the others are the file.
#include <c10/util/Exception.h>

#include "experiments/data/cifar10.h"
#include "experiments/data/idx.h"
#include "experiments/data/npy.h"
#include "tests/fuzz/in_memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const InMemoryFile file(data + 1, size - 1);
  try {
    switch (data[0] % 5) {
      case 0: experiments::read_idx(file.path(), 3); break;
      case 1: experiments::read_idx(file.path(), 1); break;
      case 2: experiments::read_cifar10({file.path()}); break;
      case 3: experiments::read_npy(file.path()); break;
      default: experiments::read_npy_sizes(file.path());
    }
  } catch (const c10::ValueError&) {
  }
  return 0;
}
