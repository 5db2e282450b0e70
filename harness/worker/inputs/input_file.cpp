// Reads the headers of .safetensors and .npy files strictly, and only those parts of tensors that a problem needs.
#include "harness/worker/inputs/input_file.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/hash.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "attn/check_tensor.h"
#include "harness/schema/json.h"
#include "harness/worker/inputs/npy_description.h"

namespace attnbench {
namespace {

static_assert(std::endian::native == std::endian::little, "the elements of files are read without swapping their bytes");

constexpr uint64_t kMaxSafetensorsHeader = uint64_t{8} << 20;  // 8 MiB are enough for 50 thousand tensors
constexpr uint64_t kMaxNpyHeader = 4096;                       // NumPy writes about 120 bytes
constexpr size_t kDigestBlock = size_t{64} << 20;
constexpr size_t kNpyAxes = 5;  // [3, batch, heads, length, dim]

[[noreturn]] void fail_at(const std::string& path, uint64_t byte, const std::string& found, const std::string& expected) {
  TORCH_CHECK_VALUE(false, path, ": byte ", byte, ": found ", found, ", expected ", expected);
}

// A part of a file in quotation marks. Characters other than printable ASCII become '?', and what exceeds 60 characters is left
// out.
std::string quoted_text(std::string_view text) {
  constexpr size_t kMaxLength = 60;
  std::string shown = "'";
  for (const auto c : text.substr(0, kMaxLength)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > kMaxLength ? "…'" : "'");
}

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const auto size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// A regular file that is read from any place.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    TORCH_CHECK_VALUE(std::filesystem::is_regular_file(status), path, ": ",
                      std::filesystem::exists(status) ? "not a regular file" : "no such file", ", expected a file of tensors");
    size_ = std::filesystem::file_size(path, error);
    stream_.open(path, std::ios::binary);
    TORCH_CHECK_VALUE(!error && stream_, path, ": cannot be read: ", std::strerror(errno));
  }

  uint64_t size() const { return size_; }

  // Reads `count` bytes from byte `begin` on; `what` names them in a message.
  void read(uint64_t begin, void* out, uint64_t count, const std::string& what) {
    stream_.clear();
    stream_.seekg(std::streamoff(begin));
    stream_.read(static_cast<char*>(out), std::streamsize(count));
    if (!stream_ || uint64_t(stream_.gcount()) != count)
      fail_at(path_, begin, "the end of the file after " + std::to_string(stream_.gcount()) + " bytes",
              std::to_string(count) + " bytes of " + what);
  }

  // The `count` bytes from byte `begin` on. Fails if the file is shorter.
  std::string text(uint64_t begin, uint64_t count, const std::string& what) {
    if (begin > size_ || count > size_ - begin)
      fail_at(path_, std::min(begin, size_), "the end of the file", std::to_string(count) + " bytes of " + what);
    std::string text(count, '\0');
    read(begin, text.data(), count, what);
    return text;
  }

 private:
  std::string path_;
  std::ifstream stream_;
  uint64_t size_ = 0;
};

// The bytes of a tensor; nothing if there are 2^63 or more.
std::optional<uint64_t> bytes_of(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const auto size : sizes)
    if (size < 0 || c10::mul_overflows(bytes, uint64_t(size), &bytes)) return std::nullopt;
  return bytes < uint64_t{1} << 63 ? std::optional(bytes) : std::nullopt;
}

// ------------------------------------------------------------ safetensors

constexpr uint64_t kHeaderBegin = 8;  // the byte after the length of the header

// Fails because the header has no tensor of this name.
[[noreturn]] void fail_without(const std::string& path, const Json& header, const std::string& name,
                               const std::vector<attn::InputSpec>& specs) {
  std::string names;
  for (const auto& [key, value] : header.items())
    if (key != "__metadata__" && names.size() < 200) names += (names.empty() ? "" : ", ") + quoted_text(key);
  std::vector<std::string> required;
  for (const auto& spec : specs)
    if (spec.required) required.push_back("'" + std::string(spec.name) + "'");
  std::string expected = required.front();
  for (size_t i = 1; i < required.size(); ++i) expected += (i + 1 < required.size() ? ", " : " and ") + required[i];
  fail_at(path, kHeaderBegin,
          "a header in which no tensor has the name '" + name + "'" + (names.empty() ? "" : ", but there is " + names),
          "the tensors " + expected);
}

// The tensor of this declaration, which is in the header, whose elements begin at byte `data` of the file and end with it.
StoredTensor stored_tensor(const std::string& path, const Json& header, const attn::InputSpec& spec, uint64_t data,
                           uint64_t file_size) {
  const std::string name = spec.name;
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    fail_at(path, kHeaderBegin, "a header in which " + found, expected);
  };
  const auto entry = header.find(name);
  if (!entry->is_object()) refuse("'" + name + "' is " + quoted_text(entry->dump()), "an object");
  const auto member = [&](const char* key) { return entry->contains(key) ? entry->at(key) : Json(); };

  StoredTensor tensor;
  const auto dtype = member("dtype");
  if (dtype == "F32") tensor.dtype = at::kFloat;
  else if (dtype == "F16") tensor.dtype = at::kHalf;
  else if (dtype == "BF16") tensor.dtype = at::kBFloat16;
  else refuse("'" + name + "' has the dtype " + quoted_text(dtype.dump()), "F32, F16 or BF16");

  const auto are_counts = [](const Json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), [](const Json& item) {
             return item.is_number_unsigned() && item <= uint64_t(INT64_MAX);
           });
  };
  const auto shape = member("shape"), offsets = member("data_offsets");
  if (!are_counts(shape) || shape.size() != std::strlen(spec.shape) || std::find(shape.begin(), shape.end(), 0) != shape.end())
    refuse("'" + name + "' has the shape " + quoted_text(shape.dump()), attn::text_of_shape(spec.shape) + ", each at least 1");
  tensor.sizes = shape.get<std::vector<int64_t>>();

  if (!are_counts(offsets) || offsets.size() != 2)
    refuse("'" + name + "' has the data_offsets " + quoted_text(offsets.dump()), "[begin, end]");
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  const auto bytes = bytes_of(tensor.sizes, tensor.dtype);
  if (!bytes || begin > end || end - begin != *bytes)
    refuse("'" + name + "' has the shape " + text_of(tensor.sizes) + ", the dtype " + dtype.get<std::string>() +
               " and the data_offsets " + offsets.dump(),
           "as many bytes between the offsets as the shape and the dtype take");
  if (end > file_size - data)
    refuse("'" + name + "' ends at byte " + std::to_string(end) + " of the data",
           "at most byte " + std::to_string(file_size - data) + ", where the file ends");
  tensor.offset = data + begin;
  return tensor;
}

void check_finite(const std::string& path, const char* name, const at::Tensor& x) {
  if (at::isfinite(x).all().item<bool>()) return;
  auto place = at::isfinite(x).logical_not().flatten().to(at::kByte).argmax().item<int64_t>();
  std::vector<int64_t> index(size_t(x.dim()));
  for (auto axis = index.size(); axis-- > 0; place /= x.size(int64_t(axis))) index[axis] = place % x.size(int64_t(axis));
  TORCH_CHECK_VALUE(false, path, ": ", name, text_of(index), " is NaN or infinity, expected a finite number");
}

}  // namespace

std::vector<StoredInput> read_safetensors_header(const std::string& path, const std::vector<attn::InputSpec>& specs) {
  File file(path);
  const auto length_bytes = file.text(0, sizeof(uint64_t), "the length of the header of a .safetensors file");
  uint64_t length = 0;
  std::memcpy(&length, length_bytes.data(), sizeof length);
  if (length > kMaxSafetensorsHeader)
    fail_at(path, 0, "a header of " + std::to_string(length) + " bytes",
            "at most " + std::to_string(kMaxSafetensorsHeader) + " bytes");
  const auto text = file.text(sizeof length, length, "the header of a .safetensors file");
  Json header;
  try {
    header = parse_json(text);
  } catch (const JsonError& error) {
    fail_at(path, sizeof length + (error.position > 0 ? error.position - 1 : 0),
            "a header that is not JSON (" + std::string(error.what()) + ")", "a JSON object");
  }
  if (!header.is_object()) fail_at(path, sizeof length, "a header " + quoted_text(text), "a JSON object");
  const auto data = sizeof length + length;
  std::vector<StoredInput> stored;
  for (const auto& spec : specs) {
    if (header.contains(spec.name)) stored.push_back({spec, stored_tensor(path, header, spec, data, file.size())});
    else if (spec.required) fail_without(path, header, spec.name, specs);
  }
  return stored;
}

std::vector<StoredInput> read_npy_header(const std::string& path, const std::vector<attn::InputSpec>& specs) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr const char* kWhat = "the header of an .npy file";
  File file(path);
  const auto begin = file.text(0, kMagic.size() + 2, kWhat);
  if (!begin.starts_with(kMagic))
    fail_at(path, 0, quoted_text(begin.substr(0, kMagic.size())), "\\x93NUMPY, with which an .npy file begins");
  const auto version = uint8_t(begin[kMagic.size()]);
  if (version < 1 || version > 3) fail_at(path, kMagic.size(), "version " + std::to_string(version), "version 1, 2 or 3");
  const size_t length_bytes = version == 1 ? 2 : 4;
  const auto written_length = file.text(begin.size(), length_bytes, kWhat);
  uint32_t length = 0;
  std::memcpy(&length, written_length.data(), length_bytes);
  if (length > kMaxNpyHeader)
    fail_at(path, begin.size(), "a header of " + std::to_string(length) + " bytes",
            "at most " + std::to_string(kMaxNpyHeader) + " bytes");
  const uint64_t description_begin = begin.size() + length_bytes;
  const auto text = file.text(description_begin, length, kWhat);
  const auto refuse = [&](const std::string& found) {
    fail_at(path, description_begin, found,
            "an array [3, batch, heads, length, dim] of float32 (<f4) or float16 (<f2) in C order");
  };
  const auto description = parse_npy_description(text);
  if (!description) refuse("a header " + quoted_text(text));
  if (description->dtype != "<f4" && description->dtype != "<f2") refuse("the dtype " + quoted_text(description->dtype));
  if (description->column_major) refuse("Fortran order");
  const auto& sizes = description->sizes;
  if (sizes.size() != kNpyAxes || sizes[0] != 3 || std::any_of(sizes.begin(), sizes.end(), [](auto size) { return size < 1; }))
    refuse("the shape " + text_of(sizes));
  StoredTensor tensor;
  tensor.dtype = description->dtype == "<f4" ? at::kFloat : at::kHalf;
  tensor.sizes.assign(sizes.begin() + 1, sizes.end());
  tensor.offset = description_begin + length;
  const auto bytes = bytes_of(sizes, tensor.dtype);
  if (!bytes || *bytes != file.size() - tensor.offset)
    fail_at(path, tensor.offset, std::to_string(file.size() - tensor.offset) + " bytes of elements",
            (bytes ? std::to_string(*bytes) : "2^63 or more") + " bytes for the shape " + text_of(sizes));
  std::vector<StoredInput> stored;
  for (const auto& spec : attn::query_key_value()) {
    stored.push_back({spec, tensor});
    tensor.offset += *bytes / 3;
  }
  std::erase_if(stored, [&](const StoredInput& one) {
    return std::none_of(specs.begin(), specs.end(), [&](const auto& spec) { return spec.member == one.spec.member; });
  });
  for (const auto& spec : specs)
    if (spec.required &&
        std::none_of(stored.begin(), stored.end(), [&](const auto& one) { return one.spec.member == spec.member; }))
      TORCH_CHECK_VALUE(false, path, ": an .npy file holds q, k and v alone, but the method needs ", spec.name,
                        " as well, expected a .safetensors file");
  return stored;
}

InputFile::InputFile(std::string path, const std::vector<attn::InputSpec>& specs) : path_(std::move(path)) {
  const auto ending = std::filesystem::path(path_).extension();
  TORCH_CHECK_VALUE(ending == ".safetensors" || ending == ".npy", path_, ": expected the name of a .safetensors or .npy file");
  stored_ = ending == ".npy" ? read_npy_header(path_, specs) : read_safetensors_header(path_, specs);
}

std::string InputFile::digest() const {
  File file(path_);
  std::string digests, digest;
  for (uint64_t begin = 0; begin < file.size(); begin += kDigestBlock) {
    digest = c10::sha1(file.text(begin, std::min<uint64_t>(kDigestBlock, file.size() - begin), "the file")).str();
    digests += digest;
  }
  return file.size() <= kDigestBlock ? digest : c10::sha1(digests).str();
}

void InputFile::check(const attn::Problem& p) const {
  // All tensors are compared axis by axis, so that the message names the first axis of a case that does not fit.
  for (const auto letter : std::string("BHGWUNLDM"))
    for (const auto& [spec, tensor] : stored_)
      for (size_t axis = 0; axis < tensor.sizes.size(); ++axis) {
        if (spec.shape[axis] != letter) continue;
        const auto* const field = attn::field_of_axis(letter);
        const auto size = tensor.sizes[axis], expected = attn::size_of_axis(letter, p);
        if (int64_t(axis) == spec.position_axis()) {
          TORCH_CHECK_VALUE(size >= expected, path_, ": ", field, ": ", spec.name, " is ", text_of(tensor.sizes), ", but ",
                            expected, " positions are needed");
        } else {
          TORCH_CHECK_VALUE(size == expected, path_, ": ", field, " = ", expected, ", but ", spec.name, " is ",
                            text_of(tensor.sizes), ", expected ", field, " = ", size);
        }
      }
}

attn::Inputs InputFile::read(const attn::Problem& p) const {
  File file(path_);
  attn::Inputs inputs;
  for (const auto& [spec, stored] : stored_) {
    auto wanted = spec.sizes(p), sizes = stored.sizes;
    if (!spec.has_batch()) wanted.insert(wanted.begin(), 1), sizes.insert(sizes.begin(), 1);
    bool fits = true;
    for (size_t axis = 0; axis < sizes.size(); ++axis)
      fits = fits && (axis < 3 ? sizes[axis] >= wanted[axis] : sizes[axis] == wanted[axis]);
    TORCH_CHECK_VALUE(fits, path_, ": ", spec.name, " is ", text_of(sizes), ", expected at least ", text_of(wanted));
    const auto x = at::empty(wanted, stored.dtype);
    // The elements of a head follow each other, and those of its first positions come first.
    auto head_elements = uint64_t(1), wanted_elements = uint64_t(1);
    for (size_t axis = 2; axis < sizes.size(); ++axis) {
      head_elements *= uint64_t(sizes[axis]);
      wanted_elements *= uint64_t(wanted[axis]);
    }
    for (int64_t b = 0; b < wanted[0]; ++b)
      for (int64_t h = 0; h < wanted[1]; ++h)
        file.read(stored.offset + uint64_t(b * sizes[1] + h) * head_elements * x.element_size(), x[b][h].mutable_data_ptr(),
                  wanted_elements * x.element_size(), spec.name);
    check_finite(path_, spec.name, x);
    inputs.*spec.member = spec.has_batch() ? x : x.select(0, 0);
  }
  return inputs;
}

}  // namespace attnbench
