#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "files.h"
#include "idx.h"

namespace digits {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tutti::ErrorKind;

std::string number(std::uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string images_of(std::uint32_t count, std::uint32_t rows, std::uint32_t columns,
                      std::size_t bytes, std::uint32_t magic = 0x803) {
  std::string text = number(magic) + number(count) + number(rows) + number(columns);
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i);
  return text;
}

std::string labels_of(std::uint32_t count, std::size_t bytes, std::uint32_t magic = 0x801) {
  return number(magic) + number(count) + std::string(bytes, '\x03');
}

class Idx : public testing::Test {
 protected:
  Dataset load_gzip(const std::string& images_bytes, const std::string& labels_bytes) {
    write_gzip(images, images_bytes);
    write_gzip(labels, labels_bytes);
    return load(images, labels);
  }
  std::string message(ErrorKind kind) {
    return message_of(kind, [&] { (void)load(images, labels); });
  }

  Folder folder;
  const std::string images = folder / "images.gz";
  const std::string labels = folder / "labels.gz";
};

TEST_F(Idx, ReadsTheDigitsThatAreShipped) {
  const Dataset data =
      load(DIGITS_DATA "/digits-images-idx3-ubyte.gz", DIGITS_DATA "/digits-labels-idx1-ubyte.gz");
  EXPECT_EQ(data.size(), 1797u);
  EXPECT_EQ(data.rows, 8u);
  EXPECT_EQ(data.columns, 8u);
  EXPECT_EQ(data.pixels.size(), 1797u * 64);
  EXPECT_EQ(data.brightest, 16);
  EXPECT_EQ(data.classes(), 10u);
}

TEST_F(Idx, ReadsAnyNumberOfRowsAndColumnsInOrder) {
  const Dataset data = load_gzip(images_of(2, 3, 2, 12), number(0x801) + number(2) + "\x07\x01");
  EXPECT_EQ(data.rows, 3u);
  EXPECT_EQ(data.columns, 2u);
  EXPECT_THAT(data.pixels, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(data.labels, ElementsAre(7, 1));
  EXPECT_EQ(data.brightest, 11);
  EXPECT_EQ(data.classes(), 8u);
}

TEST_F(Idx, ReadsImagesAsLargeAsThoseOfMnistAndMoreThanOneReadHolds) {
  const Dataset data = load_gzip(images_of(2000, 28, 28, 2000u * 784), labels_of(2000, 2000));
  EXPECT_EQ(data.pixels.size(), 2000u * 784);
  EXPECT_EQ(data.pixels.back(), static_cast<std::uint8_t>(2000u * 784 - 1));
}

TEST_F(Idx, MissingFileIsNamed) {
  EXPECT_THAT(message(ErrorKind::usage), AllOf(HasSubstr(images), HasSubstr("No such file")));
  write_gzip(images, images_of(1, 1, 1, 1));
  EXPECT_THAT(message(ErrorKind::usage), HasSubstr(labels));
}

TEST_F(Idx, FileThatIsNotGzipIsAnError) {
  write_file(images, images_of(1, 1, 1, 1));
  EXPECT_THAT(message(ErrorKind::usage), AllOf(HasSubstr(images), HasSubstr("not a gzip file")));
  write_file(images, "");
  EXPECT_THAT(message(ErrorKind::usage), HasSubstr("not a gzip file"));
}

TEST_F(Idx, FileCutShortAnywhereIsAnErrorThatSaysSo) {
  load_gzip(images_of(3, 5, 5, 75), labels_of(3, 3));
  const std::string whole = read_file(images);
  for (std::size_t size = 2; size < whole.size(); ++size) {
    write_file(images, std::string_view(whole).substr(0, size));
    EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr(images), HasSubstr("cut short")))
        << size << " of " << whole.size() << " bytes";
  }
}

TEST_F(Idx, DamagedFileIsAnError) {
  load_gzip(images_of(3, 5, 5, 75), labels_of(3, 3));
  std::string bytes = read_file(images);
  // This byte is a part of the checksum.
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
  write_file(images, bytes);
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr(images), HasSubstr("damaged")));
}

TEST_F(Idx, WrongMagicIsShownBesideTheExpectedOne) {
  write_gzip(images, images_of(1, 1, 1, 1, 0x0d03));
  EXPECT_THAT(message(ErrorKind::usage),
              AllOf(HasSubstr(images), HasSubstr("0x00000d03, expected 0x00000803")));
  write_gzip(images, images_of(1, 1, 1, 1));
  write_gzip(labels, images_of(1, 1, 1, 1));
  EXPECT_THAT(message(ErrorKind::usage), AllOf(HasSubstr(labels), HasSubstr("exchanged")));
}

TEST_F(Idx, LabelsThatDoNotBelongToTheImagesAreAnErrorWithBothNumbers) {
  write_gzip(images, images_of(3, 1, 1, 3));
  write_gzip(labels, labels_of(4, 4));
  EXPECT_THAT(message(ErrorKind::usage),
              AllOf(HasSubstr(images + "' has 3 images"), HasSubstr(labels + "' has 4 labels")));
}

TEST_F(Idx, DataThatDoNotFillOrOverflowTheAnnouncedSizeAreAnError) {
  write_gzip(labels, labels_of(3, 3));
  write_gzip(images, images_of(3, 2, 2, 11));
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("announces 12 B, and 11 B follow"));
  write_gzip(images, images_of(3, 2, 2, 13));
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("goes on after the 12 B"));
  write_gzip(images, images_of(3, 2, 2, 12));
  write_gzip(labels, labels_of(3, 2));
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr(labels), HasSubstr("cut short")));
}

TEST_F(Idx, HeaderThatAnnouncesTerabytesCostsNoMemory) {
  write_gzip(images, images_of(1u << 20, 1u << 10, 1u << 10, 5));
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("cut short"));
}

TEST_F(Idx, DimensionsOfZeroOrBeyondAllMemoryAreAnError) {
  for (const auto& [count, rows, columns] :
       {std::array{0u, 8u, 8u}, std::array{1u, 0u, 8u}, std::array{1u, 8u, 0u},
        std::array{0xffffffffu, 0xffffffffu, 0xffffffffu}}) {
    write_gzip(images, images_of(count, rows, columns, 0));
    EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("that cannot be"));
  }
}

}  // namespace
}  // namespace digits
