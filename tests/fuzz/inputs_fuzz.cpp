// Fuzzes the reading of files of inputs. For any bytes, each reader of a header must give tensors that lie within the file,
// or throw a c10::ValueError. The first byte of the input chooses the format, and the others are the file.
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "harness/worker/inputs/input_file.h"
#include "tests/fuzz/in_memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attnbench;
  if (size == 0) return 0;
  const InMemoryFile file(data + 1, size - 1);
  try {
    const std::vector<attn::InputSpec> specs(std::begin(attn::kInputs), std::end(attn::kInputs));
    const auto stored = data[0] % 2 == 0 ? read_safetensors_header(file.path(), specs) : read_npy_header(file.path(), specs);
    for (const auto& [spec, tensor] : stored) {
      uint64_t bytes = c10::elementSize(tensor.dtype);
      for (const auto length : tensor.sizes) {
        if (length < 1) std::abort();
        bytes *= uint64_t(length);
      }
      if (tensor.sizes.size() != std::strlen(spec.shape) || tensor.offset > size - 1 || bytes > size - 1 - tensor.offset)
        std::abort();
    }
  } catch (const c10::ValueError&) {
  }
  return 0;
}
