// Writes a checkpoint beside the last one and renames it, so that a complete one is always there.
#include "experiments/training/checkpoint.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/csrc/api/include/torch/serialize.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace experiments {
namespace {

constexpr auto kValues = "values";

[[noreturn]] void fail(const std::string& path, const std::string& what) { throw std::runtime_error(path + ": " + what); }

[[noreturn]] void fail_to_write(const std::string& path) {
  fail(path, std::string("cannot write the checkpoint: ") + std::strerror(errno));
}

// Closes a file descriptor at the end of a block.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

bool write_all(int file, const std::vector<char>& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const auto written = write(file, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += size_t(written);
  }
  return true;
}

}  // namespace

void Checkpoint::save(const std::string& path) const {
  c10::Dict<std::string, at::Tensor> all;
  for (const auto& [name, tensor] : tensors) all.insert(name, tensor.detach().cpu());
  const auto text = values.dump();
  all.insert(kValues, torch::from_blob(const_cast<char*>(text.data()), {int64_t(text.size())}, at::kByte).clone());
  const auto bytes = torch::pickle_save(c10::IValue(all));

  const auto partial = path + ".partial";
  {
    const OpenFile file(partial, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.descriptor() < 0 || !write_all(file.descriptor(), bytes) || fsync(file.descriptor()) != 0) {
      const auto reason = errno;
      std::error_code ignored;
      std::filesystem::remove(partial, ignored);
      errno = reason;
      fail_to_write(path);
    }
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail_to_write(path);
  // The new name is on disk only when the folder is.
  const auto folder = std::filesystem::path(path).parent_path().string();
  const OpenFile opened(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (opened.descriptor() >= 0) fsync(opened.descriptor());
}

Checkpoint Checkpoint::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, std::string("cannot read the checkpoint: ") + std::strerror(errno));
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The file is a zip archive, which ends with this record. LibTorch's reader would also accept an archive without its last byte.
  constexpr std::string_view kEndRecord("PK\5\6", 4);
  constexpr size_t kEndRecordBytes = 22;
  if (bytes.size() < kEndRecordBytes || std::string_view(bytes.data() + bytes.size() - kEndRecordBytes, 4) != kEndRecord)
    fail(path, "not a complete checkpoint: it has " + std::to_string(bytes.size()) + " bytes, and its end is missing");
  Checkpoint checkpoint;
  try {
    for (const auto& entry : torch::pickle_load(bytes).toGenericDict())
      checkpoint.tensors[entry.key().toStringRef()] = entry.value().toTensor();
    const auto values = checkpoint.tensors.at(kValues).contiguous();
    const auto* const text = static_cast<const char*>(values.const_data_ptr());
    checkpoint.values = attnbench::Json::parse(text, text + values.numel());
    checkpoint.tensors.erase(kValues);
  } catch (const c10::Error& error) {
    fail(path, "not a complete checkpoint: " + std::string(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    fail(path, "not a complete checkpoint: " + std::string(error.what()));
  }
  return checkpoint;
}

const at::Tensor& Checkpoint::tensor_like(const std::string& name, const at::Tensor& like) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::runtime_error("the checkpoint has no tensor '" + name + "'");
  if (found->second.sizes() != like.sizes() || found->second.scalar_type() != like.scalar_type()) {
    std::ostringstream message;
    message << "the tensor '" << name << "' of the checkpoint is " << found->second.scalar_type() << " " << found->second.sizes()
            << ", expected " << like.scalar_type() << " " << like.sizes();
    throw std::runtime_error(message.str());
  }
  return found->second;
}

}  // namespace experiments
