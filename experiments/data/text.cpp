// Reads the files of a folder, and cuts sequences out of a text.
#include "experiments/data/text.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

namespace experiments {
namespace {

at::Tensor read_bytes(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto error = errno;
  TORCH_CHECK_VALUE(file.is_open() && !file.bad(), path, ": ", std::generic_category().message(error),
                    "; expected a text, as every folder of a text has training.txt and validation.txt");
  TORCH_CHECK_VALUE(!bytes.empty(), path, ": it is empty, expected a text");
  return at::from_blob(bytes.data(), {int64_t(bytes.size())}, at::kByte).clone();
}

}  // namespace

TextSet load_text(const std::string& folder) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  return {read_bytes(path("training.txt")), read_bytes(path("validation.txt"))};
}

TextBatch text_batch(const at::Tensor& text, const at::Tensor& begins, int64_t length) {
  TORCH_CHECK_VALUE(text.dim() == 1 && text.scalar_type() == at::kByte, "text_batch: the text is ", text.scalar_type(), " ",
                    text.sizes(), ", expected uint8 [bytes]");
  TORCH_CHECK_VALUE(begins.dim() == 1 && begins.scalar_type() == at::kLong && begins.size(0) >= 1, "text_batch: begins are ",
                    begins.scalar_type(), " ", begins.sizes(), ", expected int64 [B]");
  const auto last = text.size(0) - length - 1;
  const auto [min, max] = begins.aminmax();
  TORCH_CHECK_VALUE(length >= 1 && min.item<int64_t>() >= 0 && max.item<int64_t>() <= last, "text_batch: sequences of ", length,
                    " bytes begin at ", min.item<int64_t>(), " to ", max.item<int64_t>(), ", expected 0 to ", last,
                    " in a text of ", text.size(0), " bytes");
  const auto bytes = text.index_select(0, (begins.unsqueeze(1) + at::arange(length + 1)).flatten()).to(at::kLong);
  const auto rows = bytes.view({begins.size(0), length + 1});
  return {rows.narrow(1, 0, length), rows.narrow(1, 1, length)};
}

}  // namespace experiments
