"""The page of ``edgekit report``: a bundle's evidence as one HTML file, without a network.

facts      what the page says, from the manifest: the same facts as the text report's
charts     Vega-Lite specifications of what is drawn
layers     the layers of the model in blocks that unfold
parts      sections by kind of evidence
answers    samples with the answers of the float model and of the variants, side by side
page       the template filled in, with the charts drawn
"""
