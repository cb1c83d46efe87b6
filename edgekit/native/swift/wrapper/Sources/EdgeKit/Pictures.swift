#if canImport(CoreGraphics)
    import CoreGraphics

    extension Session {
        /// Prepare a picture by the card, run the model and decode its outputs; boxes are in the picture's pixels.
        ///
        /// - Throws: `EdgeKitError`: as for pixels, or the picture cannot be drawn.
        public func predict(_ picture: CGImage) throws -> Prediction {
            let (width, height) = (picture.width, picture.height)
            // The picture's own colours where they are RGB: numbers are not converted, as in Python.
            let own = picture.colorSpace.flatMap { $0.model == .rgb && $0.supportsOutput ? $0 : nil }
            var pixels = [UInt8](repeating: 0, count: 4 * width * height)
            let isDrawn = pixels.withUnsafeMutableBytes { memory in
                guard
                    let space = own ?? CGColorSpace(name: CGColorSpace.sRGB),
                    let context = CGContext(
                        data: memory.baseAddress, width: width, height: height, bitsPerComponent: 8,
                        bytesPerRow: 4 * width, space: space, bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
                else { return false }
                context.draw(picture, in: CGRect(x: 0, y: 0, width: width, height: height))
                return true
            }
            guard isDrawn else { throw EdgeKitError(description: "a picture of \(width) x \(height) cannot be drawn") }
            var colours: [UInt8] = []
            colours.reserveCapacity(3 * width * height)
            for start in stride(from: 0, to: pixels.count, by: 4) { colours += pixels[start..<start + 3] }
            return try predict(pixels: colours, width: width, height: height)
        }
    }
#endif
