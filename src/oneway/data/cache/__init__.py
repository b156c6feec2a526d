"""What is kept in the user's cache folder: decoded images, and folders made of archives and videos."""

from oneway.data.cache.decoded import Cache
