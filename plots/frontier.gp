# Accuracy (or final loss) against speed. Blocks of the data: certified cells, void cells, the frontier in
# order of speed.
set key off
set lmargin at screen px(70)
set rmargin at screen px(width - 330)
set tmargin at screen py(66)
set bmargin at screen py(height - 58)
set xrange [left:right]
if (accuracy) { set yrange [bottom:top] } else { set yrange [top:bottom] }
set format y (accuracy ? '%g %%' : '%g')
set xtics autofreq
set label 1 'Accuracy against speed: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 (accuracy ? 'test accuracy with its 95 % interval' \
    : 'final loss, better upwards, with the noise floor') \
    .'; samples/s with the range over the timing rounds' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set label 3 'samples/s' at graph 0.5, screen py(height - 16) center font small_font textcolor rgb soft
set label 4 'up and to the right is better; line: not beaten in both' \
    at screen px(width - 316), screen py(height - 40) font tiny_font textcolor rgb soft
set label 5 'hollow: void, training not as good as that of O0' \
    at screen px(width - 316), screen py(height - 22) font tiny_font textcolor rgb soft
do for [i = 1:rows] { set label 100+i cell[i] at screen px(width - 316), screen py(66 + 20 * i - 10) \
    noenhanced font small_font textcolor rgb (tone[i] ? ink : vermillion) }
plot data index 2 using 1:2 with lines linecolor rgb '#9db4cc' linewidth 2, \
     data index 0 using 2:5:3:4:6:7 with xyerrorbars linecolor rgb blue pointtype 7 pointsize 0.9 \
     linewidth 1.4, \
     data index 1 using 2:5:3:4:6:7 with xyerrorbars linecolor rgb vermillion pointtype 6 pointsize 0.9 \
     linewidth 1.4, \
     data index 0 using 2:5:(sprintf('%d', $1)) with labels offset 0.9,0.7 font small_font \
     textcolor rgb blue, \
     data index 1 using 2:5:(sprintf('%d', $1)) with labels offset 0.9,0.7 font small_font \
     textcolor rgb vermillion
