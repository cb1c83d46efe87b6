"""How long things take: histograms, metrics, a card's budget, drift, and the switch to a faster variant."""
