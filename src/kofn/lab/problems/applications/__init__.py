"""Problems from applications: social influence, storage, cross-selling by pairs, lists of recommendations."""
