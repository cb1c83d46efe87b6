"""The page of ``edgekit report``: a bundle's evidence as one HTML file, without a network.

facts      what the page says, from the manifest: the same facts as the text report's
charts     Vega-Lite specifications of what is drawn
graph      the graph of the model as such a specification
answers    samples with the answers of the float model and of the variants, side by side
page       the template filled in, with the plotting library and the checks that a browser makes
"""
