// Makes LibTorch fill new tensors with NaN, so that tests of kernels that read memory before it is written fail.
#include <ATen/Context.h>

namespace {

const bool ready = [] {
  at::globalContext().setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  return true;
}();

}  // namespace
