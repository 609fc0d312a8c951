"""Problems from applications: social influence, storage, products that sell together, lists of recommendations."""
