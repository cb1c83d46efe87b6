import CoreML
import SwiftUI
import UIKit

/// Shows by how many degrees the page in the app is turned, by the .mlpackage that EdgeKit exported.
@main
struct PageOrientationApp: App {
    var body: some Scene {
        WindowGroup { Text(Classifier.describe("page")).font(.title) }
    }
}

enum Classifier {
    // The card of the model: samples/classify_image/card.toml.
    static let size = 224
    static let crop = 0.875
    static let mean: [Float] = [123.675, 116.28, 103.53]
    static let std: [Float] = [58.395, 57.12, 57.375]
    static let labels = ["0", "90", "180", "270"]

    static func describe(_ name: String) -> String {
        guard let picture = UIImage(named: name)?.cgImage else { return "there is no picture \(name)" }
        do {
            return try classify(picture)
        } catch {
            return "\(error)"
        }
    }

    static func classify(_ picture: CGImage) throws -> String {
        // Xcode compiles classifier.mlpackage into classifier.mlmodelc.
        guard let url = Bundle.main.url(forResource: "classifier", withExtension: "mlmodelc") else {
            return "classifier.mlpackage is not in the app"
        }
        let model = try MLModel(contentsOf: url)
        let features = try MLDictionaryFeatureProvider(dictionary: ["x": prepare(picture)])
        guard let scores = try model.prediction(from: features).featureValue(for: "fetch_name_0")?.multiArrayValue
        else { return "the model has another output" }
        let best = labels.indices.max { scores[$0].floatValue < scores[$1].floatValue }!
        return "\(labels[best])°  \(scores[best].floatValue)"
    }

    /// The middle of the picture as float32 [1, 3, 224, 224], RGB, normalised.
    static func prepare(_ picture: CGImage) throws -> MLMultiArray {
        let side = (crop * Double(min(picture.width, picture.height))).rounded()
        let middle = CGRect(
            x: (Double(picture.width) - side) / 2, y: (Double(picture.height) - side) / 2, width: side, height: side)
        var pixels = [UInt8](repeating: 0, count: 4 * size * size)
        pixels.withUnsafeMutableBytes { memory in
            let context = CGContext(
                data: memory.baseAddress, width: size, height: size, bitsPerComponent: 8, bytesPerRow: 4 * size,
                space: CGColorSpace(name: CGColorSpace.sRGB)!, bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)!
            context.interpolationQuality = .high
            context.draw(picture.cropping(to: middle)!, in: CGRect(x: 0, y: 0, width: size, height: size))
        }
        let input = try MLMultiArray(shape: [1, 3, 224, 224], dataType: .float32)
        let values = input.dataPointer.bindMemory(to: Float.self, capacity: 3 * size * size)
        for channel in 0..<3 {
            for place in 0..<(size * size) {
                values[channel * size * size + place] =
                    (Float(pixels[4 * place + channel]) - mean[channel]) / std[channel]
            }
        }
        return input
    }
}
