// Reads the versions from the sections of an ELF file.
#include "harness/worker/methods/plugin_file.h"

#include <c10/util/Exception.h>
#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "attn/plugin.h"

namespace attnbench {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;

// The part of the file with these bounds; nothing if the file is shorter.
std::optional<std::string_view> part_of(std::string_view contents, uint64_t begin, uint64_t size) {
  if (begin > contents.size() || size > contents.size() - begin) return std::nullopt;
  return contents.substr(begin, size);
}

// The structure that begins at this place of the file; nothing if the file ends before its end.
template <typename Structure>
std::optional<Structure> structure_at(std::string_view contents, uint64_t begin) {
  const auto bytes = part_of(contents, begin, sizeof(Structure));
  if (!bytes) return std::nullopt;
  Structure structure;
  std::memcpy(&structure, bytes->data(), sizeof structure);
  return structure;
}

std::optional<Elf64_Shdr> section_header(std::string_view contents, const Elf64_Ehdr& file, uint64_t index) {
  if (file.e_shentsize != sizeof(Elf64_Shdr) || file.e_shoff > contents.size()) return std::nullopt;
  return structure_at<Elf64_Shdr>(contents, file.e_shoff + index * sizeof(Elf64_Shdr));
}

// The contents of the section of this name; nothing if the file has none.
std::optional<std::string_view> find_section(std::string_view contents, const Elf64_Ehdr& file, std::string_view name) {
  const auto names = section_header(contents, file, file.e_shstrndx);
  if (!names) return std::nullopt;
  for (uint64_t i = 0; i < file.e_shnum; ++i) {
    const auto section = section_header(contents, file, i);
    if (!section) return std::nullopt;
    // The name is followed by a zero.
    const auto named = part_of(contents, names->sh_offset + section->sh_name, name.size() + 1);
    if (named && named->substr(0, name.size()) == name && named->back() == '\0')
      return part_of(contents, section->sh_offset, section->sh_size);
  }
  return std::nullopt;
}

// The text up to the zeros after it.
template <size_t kSize>
std::string text_in(const char (&field)[kSize]) {
  return {field, std::find(field, field + kSize, '\0')};
}

}  // namespace

std::string read_plugin_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  TORCH_CHECK_VALUE(file, path, ": ", std::strerror(errno), "; expected a plug-in, which is a shared library");
  const auto size = file.tellg();
  TORCH_CHECK_VALUE(size >= 0 && size_t(size) <= kMaxBytes, path, ": longer than 1 GiB, expected a plug-in");
  std::string contents(size_t(size), '\0');
  TORCH_CHECK_VALUE(file.seekg(0).read(contents.data(), size), path, ": cannot be read: ", std::strerror(errno));
  return contents;
}

PluginVersions versions_in(const std::string& path, std::string_view contents) {
  const auto file = structure_at<Elf64_Ehdr>(contents, 0);
  TORCH_CHECK_VALUE(
      file && std::memcmp(file->e_ident, ELFMAG, SELFMAG) == 0 && file->e_ident[EI_CLASS] == ELFCLASS64 && file->e_type == ET_DYN,
      path, ": not a 64-bit shared library, expected a plug-in");
  const auto section = find_section(contents, *file, ATTNBENCH_PLUGIN_SECTION);
  const auto stamp = section ? structure_at<attn::PluginStamp>(*section, 0) : std::nullopt;
  TORCH_CHECK_VALUE(
      stamp, path,
      ": not a plug-in of attnbench, expected a library with ATTNBENCH_PLUGIN (attn/plugin.h) in one of its sources");
  return {text_in(stamp->interface_version), text_in(stamp->torch_version)};
}

void check_versions(const std::string& path, const PluginVersions& versions) {
  TORCH_CHECK_VALUE(versions.interface_version == ATTN_INTERFACE_VERSION, path, ": built with attnbench ",
                    versions.interface_version, ", expected ", ATTN_INTERFACE_VERSION,
                    "; compile the plug-in again with the headers of this attnbench");
  TORCH_CHECK_VALUE(versions.torch_version == TORCH_VERSION, path, ": built with torch ", versions.torch_version,
                    ", expected torch ", TORCH_VERSION,
                    ", which this attnbench was built with; compile the plug-in again with it");
}

}  // namespace attnbench
