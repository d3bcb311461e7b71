# A program is started from the mount (its pages are read as the kernel reads programs).
cp /bin/busybox busybox
chmod 755 busybox
[ "$(./busybox echo started)" = started ]
printf '#!/bin/sh\necho script\n' > script
chmod 755 script
[ "$(./script)" = script ]
chmod 644 script
refuse ./script
