import EdgeKit
import PhotosUI
import SwiftUI

/// Chooses a photo and shows what the model finds in it.
@main
struct EdgeKitApp: App {
    var body: some Scene {
        WindowGroup { PhotoScreen() }
    }
}

struct PhotoScreen: View {
    @StateObject private var model = PhotoModel()
    @State private var chosen: PhotosPickerItem?

    var body: some View {
        ScrollView {
            VStack(alignment: .leading, spacing: 12) {
                PhotosPicker("Choose a photo", selection: $chosen, matching: .images)
                if let photo = model.photo {
                    Image(uiImage: photo).resizable().scaledToFit().overlay(boxes(photo.size))
                }
                Text(model.text)
            }.padding()
        }
        .task { await model.open() }
        .onChange(of: chosen) { item in
            guard let item else { return }
            Task { await model.show(item) }
        }
    }

    private func boxes(_ size: CGSize) -> some View {
        Canvas { context, shown in
            for box in model.items.compactMap(\.box) {
                let scale = CGAffineTransform(scaleX: shown.width / size.width, y: shown.height / size.height)
                context.stroke(Path(box.rectangle.applying(scale)), with: .color(.red), lineWidth: 2)
            }
        }
    }
}

@MainActor
final class PhotoModel: ObservableObject {
    @Published var photo: UIImage?
    @Published var items: [Item] = []
    @Published var text = ""
    private var session: Session?

    func open() async {
        do {
            text = PhotoModel.describe(try await opened())
        } catch {
            text = "\(error)"
        }
    }

    func show(_ item: PhotosPickerItem) async {
        do {
            guard let data = try await item.loadTransferable(type: Data.self), let image = UIImage(data: data) else {
                text = "this is not a photo"
                return
            }
            let upright = PhotoModel.upright(image)
            guard let picture = upright.cgImage else { return }
            let session = try await opened()
            let prediction = try await Task.detached { try session.predict(picture) }.value
            photo = upright
            items = prediction.items
            let lines = items.map { "\($0.label.isEmpty ? String($0.index) : $0.label)  \(String(format: "%.2f", $0.score))" }
            text = ([PhotoModel.describe(session), ""] + lines).joined(separator: "\n")
        } catch {
            text = "\(error)"
        }
    }

    private func opened() async throws -> Session {
        if let session { return session }
        guard let path = Bundle.main.path(forResource: "model", ofType: "edgekit") else {
            throw CocoaError(.fileNoSuchFile)
        }
        let made = try await Task.detached { try Session(path: path) }.value
        session = made
        return made
    }

    private static func describe(_ session: Session) -> String {
        let active = session.active.map { "runs \($0.name), \($0.status)" } ?? "no variant runs"
        return ([active] + session.fallbacks.map { "\($0.from) -> \($0.to): \($0.reason)" }).joined(separator: "\n")
    }

    /// Return the photo turned by its orientation, at one pixel a point.
    private static func upright(_ image: UIImage) -> UIImage {
        let format = UIGraphicsImageRendererFormat()
        format.scale = 1
        format.preferredRange = .standard
        let size = CGSize(width: image.size.width * image.scale, height: image.size.height * image.scale)
        return UIGraphicsImageRenderer(size: size, format: format).image { _ in
            image.draw(in: CGRect(origin: .zero, size: size))
        }
    }
}
